"""The function of a custom mapping is code like any other: edited, it is deployed anew, and nobody runs the old one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from servo.assets.loading import examine, load, resolver
from servo.controllers.dispatch import Claim
from servo.controllers.requests import request
from servo.errors import InvalidDefinition
from servo.events import Proposal
from servo.events.definitions import Source
from servo.partitions.mappings import mapping_from_json
from servo.planning.catalog import Catalog
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.deploying import deploy, recorded_catalog
from servo.runtime.loop.control import Control
from servo.runtime.settings import Settings
from servo.runtime.worker.code import Code

NOTHING = "upstream.empty()"
ITSELF = "upstream.set_of(asked)"
THE_FIRST = 'upstream.set_of(["2025-01-01"])'
SHOP = """
    from servo import Daily, asset, mapping

    days = Daily("date", start="2025-01-01")

    @asset(partitions=days)
    def orders(context): ...

    @asset(partitions=days, deps={"orders": mapping.Custom("maps:reads")})
    def sums(orders): ...
"""
_DEPLOY = """
    from servo.assets.loading import load
    from servo.runtime import load_settings, open_workspace
    from servo.runtime.deploying import deploy
    with open_workspace(load_settings(), create=True) as project:
        deploy(project, load(project.settings))
"""


class Shop:
    """A project whose control plane runs here for a long time, while people edit and ask for runs elsewhere."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "definitions.py").write_text(dedent(SHOP))
        (root / "servo.toml").write_text("namespace = 'shop'\n")
        self.maps(NOTHING)
        self.settings: Settings = load_settings(root, {})
        self.project: Project = open_workspace(self.settings, create=True)

    def maps(self, answer: str) -> None:
        (self.root / "helper.py").write_text(f"def answer(asked, upstream):\n    return {answer}\n")
        # The helper is not part of what a function says, but whoever imports one anew has both anew.
        text = f"from helper import answer\ndef reads(asked, upstream):\n    {answer!r}, 1\n"
        (self.root / "maps.py").write_text(f"{text}    return answer(asked, upstream)\n")

    def asks_for(self, day: str) -> str:
        """Deploys the folder as it is now, in a process of its own, and asks for a day of the sums."""
        subprocess.run([sys.executable, "-c", dedent(_DEPLOY)], cwd=self.root, check=True)
        known = self.known()
        run_id = self.project.mint()
        asked = request(
            known,
            {"shop/sums": known.spec("shop/sums").partitions.set_of([day])},
            run_key=run_id,
            run_id=run_id,
            source=Source(kind="manual", id="person:ann"),
        )
        self.project.ledger.append([Proposal(fact=asked, occurred_at=self.project.clock(), actor="person:ann")])
        return run_id

    def run(self, run_id: str) -> dict[str, Any]:
        sql = "SELECT status, reason FROM runs WHERE run_id = $run_id"
        return self.project.reader.query(sql, {"run_id": run_id}, fresh=True).dicts()[0]

    def known(self) -> Catalog:
        return recorded_catalog(self.project)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    with made.project:
        yield made


def test_an_edited_function_is_deployed_and_the_control_plane_takes_it_up(shop: Shop) -> None:
    control = Control(shop.project)
    first = shop.asks_for("2025-01-02")
    control.step()
    assert shop.run(first) == {"status": "PLANNED", "reason": None}
    assert shop.known().number == 1

    shop.maps(ITSELF)
    second = shop.asks_for("2025-01-03")
    assert shop.known().number == 2, "another function, another deployment"
    control.step()
    refused = shop.run(second)
    assert refused["status"] == "FAILED"
    assert "shop/orders" in refused["reason"]
    assert "2025-01-03" in refused["reason"], "the function as it was before reads nothing"

    shop.asks_for("2025-01-04")
    assert shop.known().number == 2, "the same function, the same deployment"


def test_another_checkout_says_so_and_is_looked_at_again(shop: Shop) -> None:
    control = Control(shop.project)
    shop.asks_for("2025-01-02")
    control.step()
    shop.maps(ITSELF)
    first = shop.asks_for("2025-01-03")
    shop.maps(NOTHING)  # as in a checkout that has not got there yet
    control.step()
    refused = shop.run(first)
    assert refused["status"] == "FAILED"
    assert "the code of the mapping maps:reads was deployed as" in refused["reason"]
    assert "same checkout" in refused["reason"]
    assert "\n" not in refused["reason"]

    shop.maps(ITSELF)
    again = shop.asks_for("2025-01-04")
    assert shop.known().number == 2
    control.step()
    assert "2025-01-04" in shop.run(again)["reason"], "the files are as deployed again"


def test_a_worker_of_another_checkout_leaves_it_to_others(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    code = Code(lambda: load(shop.settings))
    claim = _claim(shop)
    shop.maps(THE_FIRST)
    shop.asks_for("2025-01-02")
    assert code.has(claim, shop.known()), "the files are as deployed, though this process had the older ones"
    shop.maps(ITSELF)
    shop.asks_for("2025-01-03")
    shop.maps(NOTHING)
    assert not code.has(claim, shop.known())
    assert "is left to others: the code of the mapping maps:reads was deployed as" in caplog.text
    shop.maps(ITSELF)
    assert code.has(claim, shop.known())


def test_a_file_that_somebody_is_editing_does_no_harm_to_what_is_deployed(shop: Shop) -> None:
    deploy(shop.project, load(shop.settings))
    (shop.root / "maps.py").write_text("def reads(asked, upstream):\n    return (\n")
    known = shop.known()
    mapping = known.graph.mapping("shop/orders", "shop/sums")
    days = known.spec("shop/sums").partitions.set_of(["2025-01-02"])
    now = datetime(2025, 2, 1, tzinfo=UTC)
    assert not mapping.upstream(days, known.spec("shop/orders").partitions, now)
    _, problems = examine(shop.settings)
    assert "the module of 'maps:reads' does not load: SyntaxError" in problems[0].message


def test_what_has_no_name_is_refused_when_it_is_loaded(shop: Shop) -> None:
    text = dedent(SHOP).replace('"maps:reads"', "lambda asked, upstream: upstream.empty()")
    (shop.root / "definitions.py").write_text(text)
    with pytest.raises(InvalidDefinition, match="there is no function 'definitions:<lambda>'"):
        load(shop.settings)


def test_a_deployment_from_before_there_were_codes_is_found_by_name_alone(shop: Shop) -> None:
    definitions = load(shop.settings)
    said = definitions.graph.mapping("shop/orders", "shop/sums").to_json()
    assert set(said) == {"kind", "function", "code"}
    from_before = mapping_from_json({"kind": "custom", "function": "maps:reads"}, resolver(shop.root))
    days = definitions.graph.specs["shop/orders"].partitions
    from_before.check(days, days)
    with pytest.raises(InvalidDefinition, match="was deployed as abc, but here it is"):
        mapping_from_json(said | {"code": "abc"}, resolver(shop.root)).check(days, days)


def _claim(shop: Shop) -> Claim:
    spec = load(shop.settings).graph.specs["shop/sums"]
    return Claim(
        run_id="run-1",
        task_key="shop/sums#0",
        attempt=1,
        asset_id="a",
        asset_key="shop/sums",
        code_version=spec.code_version,
        partitions=spec.partitions.set_of(["2025-01-02"]),
        blocked=spec.partitions.empty(),
        blocked_by=(),
        deployment_id=None,
        planned_at=datetime(2025, 2, 1, tzinfo=UTC),
        succeeded_before=0,
        lost_before=0,
    )


BY_FILE = """
    from servo import Daily, asset, mapping

    days = Daily("date", start="2025-01-01")

    def reads(asked, upstream):
        return upstream.empty()

    @asset(partitions=days)
    def orders(context): ...

    @asset(partitions=days, deps={"orders": mapping.Custom(reads)})
    def sums(orders): ...
"""
_READ = """
    from servo.runtime import load_settings, open_workspace
    from servo.runtime.deploying import recorded_catalog
    with open_workspace(load_settings()) as project:
        known = recorded_catalog(project)
        asked = known.spec("shop/sums").partitions.set_of(["2025-01-02"])
        read = known.graph.mapping("shop/orders", "shop/sums")
        print(read.upstream(asked, known.spec("shop/orders").partitions, project.clock()).count)
"""


def test_a_mapping_in_a_file_whose_name_is_no_modules_is_found_by_who_loads_nothing(tmp_path: Path) -> None:
    (tmp_path / "my-assets.py").write_text(dedent(BY_FILE))
    (tmp_path / "servo.toml").write_text("namespace = 'shop'\n")
    said = [
        subprocess.run([sys.executable, "-c", dedent(code)], cwd=tmp_path, capture_output=True, text=True, check=False)
        for code in (_DEPLOY, _READ)
    ]
    assert [(one.returncode, one.stdout) for one in said] == [(0, ""), (0, "0\n")], said[1].stderr
