"""Code that changed: which partitions are stale by it, what changed in it, and what was declared equal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest

from servo.answers.assets import CodeAccepted
from servo.assets.loading import load
from servo.controllers.dispatch import Claim
from servo.errors import InvalidInput
from servo.events import Proposal, decode
from servo.events.columns import PartitionOutcomes
from servo.events.fact import Fact
from servo.events.model import DefinitionsDeployed, MaterializationPublished
from servo.planning.deployment import deployment_facts
from servo.runtime import load_settings, open_workspace
from servo.runtime.deploying import Deployment, deploy, deployed_state, recorded_catalog
from servo.runtime.reproducing import require_same_code
from servo.runtime.states import state_of
from servo.runtime.worker.code import Code
from servo.status.staleness import stale_partitions
from servo.status.staleness_cache import refresh_cache
from tests.support.operating import plan_what_is_due
from tests.support.questions import Why, accept_code

DAYS = ["date=d:2025-01-01", "date=d:2025-01-02"]
DEFINITIONS = """
    from servo import Daily, asset
    from helpers import clean
    days = Daily("date", start="2025-01-01", end="2025-01-03")

    @asset(partitions=days)
    def orders(context):
        return clean(context)

    @asset(partitions=days)
    def other(context):
        return context
"""
HELPERS = "LIMIT = {limit}\n\ndef clean(df):\n    return df.limit(LIMIT)\n"


class Shop:
    """A project in a folder, whose clock goes on by a minute with every look."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = datetime(2025, 3, 1, tzinfo=UTC)
        (root / "definitions.py").write_text(dedent(DEFINITIONS))
        self.helpers(10)
        self.settings = load_settings(root, {"SERVO_NAMESPACE": "shop"})
        self.project = open_workspace(self.settings, create=True, clock=self.clock)

    def clock(self) -> datetime:
        self.now += timedelta(minutes=1)
        return self.now

    def helpers(self, limit: int | str) -> None:
        (self.root / "helpers.py").write_text(HELPERS.format(limit=limit))

    def deploy(self) -> Deployment:
        return deploy(self.project, load(self.settings))

    def deploy_as_before(self) -> None:
        """As an earlier version of Servo did, which had the first formula alone."""
        definitions = load(self.settings)
        facts = deployment_facts(
            deployed_state(self.project),
            definitions,
            now=self.clock(),
            mint=self.project.mint,
            mint_asset=lambda _: self.project.new_asset_id(),
        )
        for fact in facts:
            assert isinstance(fact, DefinitionsDeployed)
            first = {key: spec.first_version for key, spec in definitions.graph.specs.items()}
            assets = [
                msgspec.structs.replace(one, code_version=first[one.asset_key], reached={}, same_code_as=None)
                for one in fact.assets
            ]
            self.record(msgspec.structs.replace(fact, assets=assets, git_commit=None, git_clean=None))

    def record(self, fact: Fact) -> None:
        self.project.ledger.append([Proposal(fact=fact, occurred_at=self.clock(), actor="tester")])

    def make(self, asset: str = "shop/orders", days: list[str] = DAYS) -> None:
        known = recorded_catalog(self.project)
        self.record(
            MaterializationPublished(
                publication_id=self.project.mint(),
                asset_id=known.asset_id(asset),
                asset_key=asset,
                partitions=PartitionOutcomes(keys=days, first_materialization_id=self.project.mint(len(days))),
                code_version=known.spec(asset).code_version,
            )
        )

    def stale(self, as_of: datetime | None = None) -> dict[tuple[str, str], datetime]:
        """The partitions that are stale by their code, since when; however it is asked, the answer is the same."""
        found = stale_partitions(state_of(self.project, as_of), cached=False)
        assert all(one.reason_code == "CODE_CHANGED" for one in found)
        if as_of is None:
            assert stale_partitions(state_of(self.project)) == found
            refresh_cache(state_of(self.project), self.project.mint)
            assert stale_partitions(state_of(self.project)) == found
            keys = {"shop/orders": DAYS, "shop/other": DAYS}
            assert stale_partitions(state_of(self.project), list(keys), only=keys) == found
            for one in found:
                why = Why(self.project).partition(one.asset_key, one.partition_key.partition(":")[2])
                assert [(ground.code, ground.since) for ground in why.reasons] == [("CODE_CHANGED", one.stale_since)]
        return {(one.asset_key.partition("/")[2], one.partition_key): one.stale_since for one in found}

    def due(self) -> list[str]:
        due, _ = plan_what_is_due(self.project, ["*"])
        return [f"{one.asset_key} {one.sentence()}" for one in due.groups]

    def accept(self, *versions: str, asset: str = "orders", reason: str = "a refactoring") -> CodeAccepted:
        return accept_code(self.project, asset, versions, reason=reason, actor="person:ann")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.project.reader.query(sql, fresh=True).rows


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    with made.project:
        yield made


def test_a_helper_that_changed_makes_its_readers_stale_by_name(shop: Shop) -> None:
    shop.deploy()
    shop.make()
    shop.make("shop/other")
    assert (shop.stale(), shop.due()) == ({}, [])
    shop.helpers(20)
    # What is about to be deployed counts as if it were.
    told = ["shop/orders stale: code changed: helpers.LIMIT in helpers.py"]
    assert shop.due() == told
    done = shop.deploy()
    assert done.changed
    at = shop.now
    found = shop.stale()
    assert set(found) == {("orders", day) for day in DAYS}
    assert all(since <= at for since in found.values())
    assert shop.due() == told
    why = Why(shop.project).partition("orders", "2025-01-01")
    assert why.reasons[0].sentence.startswith("code changed: helpers.LIMIT in helpers.py; made by code ")
    shop.helpers(10)
    shop.deploy()
    assert shop.stale() == {}
    recorded = shop.rows("SELECT reached FROM asset_versions WHERE asset_key = 'shop/orders' ORDER BY number")
    assert [sorted(json.loads(text)) for (text,) in recorded] == [
        ["@asset", "definitions.py:@function", "helpers.py:LIMIT", "helpers.py:clean"]
    ] * 3


def test_a_ledger_of_the_first_formula_is_not_stale_after_an_upgrade(shop: Shop) -> None:
    shop.deploy_as_before()
    shop.make()
    shop.make("shop/other")
    before = shop.project.ledger.head().position
    assert shop.due() == []
    assert shop.deploy().changed
    assert (shop.stale(), shop.due()) == ({}, [])
    first, second = (
        version
        for (version,) in shop.rows(
            "SELECT code_version FROM asset_versions WHERE asset_key = 'shop/orders' ORDER BY number"
        )
    )
    assert first != second
    assert shop.rows("SELECT code_version, equal_code_version FROM equal_code WHERE asset_key = 'shop/orders'") == [
        (second, first)
    ]
    assert not shop.deploy().changed
    # From here on helpers count, also for what was made before.
    shop.helpers(20)
    shop.deploy()
    deployed_at = shop.rows("SELECT max(deployed_at) FROM asset_versions")[0][0]
    assert shop.stale() == {("orders", day): deployed_at for day in DAYS}
    # What is planned by the first formula is this very code; what it reads as of then is as it was.
    [event] = shop.project.history.read(before - 1, 1)
    assert shop.stale(as_of=event.event_id) == {}


def test_a_function_that_changed_with_the_upgrade_is_stale(shop: Shop) -> None:
    shop.deploy_as_before()
    shop.make()
    text = (shop.root / "definitions.py").read_text()
    (shop.root / "definitions.py").write_text(text.replace("return clean(context)", "return clean(context).cache()"))
    assert shop.due()[0] == "shop/orders stale: code changed"
    shop.deploy()
    assert set(shop.stale()) == {("orders", day) for day in DAYS}


def test_a_run_that_was_planned_before_an_upgrade_finds_its_code(shop: Shop) -> None:
    code = Code(lambda: load(shop.settings))
    spec = load(shop.settings).graph.specs["shop/orders"]
    nothing = spec.partitions.empty()
    for version in (spec.code_version, spec.first_version):
        claim = Claim(
            run_id="r", task_key="t", attempt=1, asset_id="a", asset_key="shop/orders", code_version=version,
            partitions=nothing, blocked=nothing, blocked_by=(), deployment_id=None, planned_at=shop.now,
            succeeded_before=0, lost_before=0,
        )  # fmt: skip
        assert code.asset(claim).spec.key == "shop/orders"


def test_a_refactoring_is_declared_equal(shop: Shop) -> None:
    shop.deploy()
    shop.make()
    shop.make("shop/other")
    shop.helpers("5 + 5")
    shop.deploy()
    changed_at = shop.rows("SELECT max(deployed_at) FROM asset_versions")[0][0]
    assert set(shop.stale().values()) == {changed_at}
    before = shop.project.ledger.head().position
    done = shop.accept()
    assert (done.partitions, done.changes) == (2, ["helpers.LIMIT in helpers.py"])
    assert (shop.stale(), shop.due()) == ({}, [])
    # As of before it was declared, they were stale.
    [event] = shop.project.history.read(before - 1, 1)
    assert set(shop.stale(as_of=event.event_id)) == {("orders", day) for day in DAYS}
    # What either version made is equal; going back to the one before is no change.
    shop.make(days=DAYS[:1])
    assert shop.stale() == {}
    shop.helpers(10)
    shop.deploy()
    assert shop.stale() == {}
    # Whoever reproduces what either made is not told that it was other code.
    mine, versions = load(shop.settings).assets["shop/orders"], [done.code_version, *done.equal_to]
    asset_id = recorded_catalog(shop.project).asset_id("shop/orders")
    for version in (*versions, mine.spec.first_version):
        require_same_code(shop.project, asset_id, mine, version, "it")
    with pytest.raises(InvalidInput, match="was made by code version other"):
        require_same_code(shop.project, asset_id, mine, "other", "it")
    # A further change is one, from then on, for both.
    shop.helpers(30)
    shop.deploy()
    at = shop.rows("SELECT max(deployed_at) FROM asset_versions")[0][0]
    assert shop.stale() == {("orders", day): at for day in DAYS}


def test_a_refactoring_in_several_steps_is_about_what_partitions_were_made_with(shop: Shop) -> None:
    shop.deploy()
    shop.make()
    for step in ("11", "12", "2 * 5"):
        shop.helpers(step)
        shop.deploy()
    assert shop.accept().partitions == 2
    assert shop.stale() == {}
    # Equal to the same is equal.
    shop.make(days=DAYS[:1])
    shop.helpers("3 + 7")
    shop.deploy()
    assert len(shop.stale()) == 2
    shop.accept()
    assert shop.stale() == {}


def test_what_cannot_be_declared_equal_is_refused(shop: Shop) -> None:
    shop.deploy()
    shop.make()
    current = recorded_catalog(shop.project).spec("shop/orders").code_version
    head = shop.project.ledger.head().position
    with pytest.raises(InvalidInput, match="no partition of shop/orders was made by other code"):
        shop.accept()
    with pytest.raises(InvalidInput, match="never had the code version 'abc'"):
        shop.accept("abc")
    with pytest.raises(InvalidInput, match="is the code version that shop/orders has now"):
        shop.accept(current)
    with pytest.raises(InvalidInput, match="no reason"):
        shop.accept(reason=" ")
    assert shop.project.ledger.head().position == head


def test_a_deployment_records_the_commit(shop: Shop) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", "-C", str(shop.root), *identity, *arguments], capture_output=True, text=True, check=True, timeout=60
        ).stdout.strip()

    def commit() -> tuple[str | None, bool | None]:
        facts = [decode(event) for event in shop.project.history.events(0)]
        last = [one for one in facts if isinstance(one, DefinitionsDeployed)][-1]
        assert shop.rows("SELECT git_commit, git_clean FROM asset_versions ORDER BY number DESC LIMIT 1") == [
            (last.git_commit, last.git_clean)
        ]
        return last.git_commit, last.git_clean

    shop.deploy()
    assert commit() == (None, None)
    git("init", "-q")
    git("add", "definitions.py")
    git("commit", "-q", "-m", "first")
    shop.helpers(11)
    shop.deploy()
    assert commit() == (git("rev-parse", "HEAD"), False)  # helpers.py is not committed
    git("add", "helpers.py")
    git("commit", "-q", "-m", "second")
    assert not shop.deploy().changed  # another commit alone changes nothing
    shop.helpers(12)
    git("commit", "-qam", "third")
    shop.deploy()
    assert commit() == (git("rev-parse", "HEAD"), True)
    shop.helpers(13)
    shop.deploy()
    assert commit() == (git("rev-parse", "HEAD"), False)


def test_a_deployment_needs_no_git(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "-C", str(shop.root), "init", "-q"], check=True, timeout=60)
    monkeypatch.setenv("PATH", str(shop.root))
    assert shop.deploy().changed
    (shop.root / "git").write_text("#!/bin/sh\nexit 128\n")
    (shop.root / "git").chmod(0o755)
    shop.helpers(11)
    assert shop.deploy().changed
    assert shop.rows("SELECT DISTINCT git_commit, git_clean FROM asset_versions") == [(None, None)]
