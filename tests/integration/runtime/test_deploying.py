"""Definitions take effect by one event; what is deployed can be read back, as of any time, and quickly."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

from servo.assets.loading import Definitions, load
from servo.assets.spec import AssetSpec, Source
from servo.events import Proposal
from servo.events.automation import SchedulePaused, SensorPaused
from servo.events.model import DynamicPartitionsChanged
from servo.ids import ulid_time
from servo.planning.catalog import Catalog, DeployedState
from servo.planning.deployment import preview
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.definitions_cache import quick_catalog
from servo.runtime.deploying import deploy, deployed_state, in_force, recorded_catalog

SHOP = """
    from datetime import timedelta
    import servo
    from servo import Approval, Daily, Dep, Monthly, Retry, Static, asset, check, mapping

    days = Daily("date", start="2025-01-01", timezone="Europe/Berlin")

    @asset(partitions=days, retry=Retry(attempts=3, on=(OSError,)), tags={"tier": "raw"}, owners=["ann"])
    def raw(context): ...

    @asset(partitions=days, batch=True, checks=[check.unique("id", blocking=True)], deps={"raw": mapping.Offset(-1)})
    def orders(raw):
        "Orders, once each."

    @asset(partitions=days * Static("region", ["eu", "us"]), freshness=timedelta(hours=26), group="out")
    def revenue(context, orders): ...

    @asset(partitions=Monthly("month", start="2025-01"), approval=Approval("finance", four_eyes=True))
    def report(revenue): ...

    @asset(deps=["report"])
    def page(): ...

    nightly = servo.Schedule("nightly", cron="0 6 * * *", timezone="Europe/Berlin", select="+revenue@latest")

    @servo.sensor
    def landing(context): ...
"""


class Shop:
    """A project in a folder, whose clock goes on by a minute with every look."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = datetime(2025, 3, 1, tzinfo=UTC)
        self.settings = load_settings(root, {"SERVO_NAMESPACE": "shop"})
        self.project = self.opened()
        self.write(SHOP)

    def opened(self) -> Project:
        return open_workspace(self.settings, create=True, clock=self.clock)

    def clock(self) -> datetime:
        self.now += timedelta(minutes=1)
        return self.now

    def write(self, text: str) -> None:
        (self.root / "definitions.py").write_text(dedent(text))

    def edit(self, *changes: tuple[str, str]) -> None:
        text = (self.root / "definitions.py").read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (self.root / "definitions.py").write_text(text)

    def load(self) -> Definitions:
        return load(self.settings)

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        return self.project.reader.query(sql, fresh=True).rows

    def record(self, *facts: object) -> None:
        now = self.clock()
        self.project.ledger.append([Proposal(fact=fact, occurred_at=now, actor="tester") for fact in facts])  # type: ignore[arg-type]


def stored(of: Catalog | Definitions) -> dict[str, AssetSpec]:
    """The specs, without what a code version covers: that is read from `asset_versions`."""
    return {key: msgspec.structs.replace(spec, reached={}, first_version=None) for key, spec in of.graph.specs.items()}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    with made.project:
        yield made


def test_what_is_deployed_is_what_was_declared(shop: Shop) -> None:
    definitions = shop.load()
    done = deploy(shop.project, definitions, actor="person:ann")
    assert (done.changed, done.removed) == (True, ())
    assert done.added == tuple(definitions.graph.specs)
    read = recorded_catalog(shop.project)
    for known in (done.catalog, read):
        assert known.number == 1
        assert known.deployment_id == done.catalog.deployment_id
        assert known.definitions_hash == done.catalog.definitions_hash
        assert known.asset_ids == done.catalog.asset_ids
        assert stored(known) == stored(definitions)
        assert known.asset_key(known.asset_id("shop/raw")) == "shop/raw"
    assert shop.project.ledger.read(0)[0].actor == "person:ann"
    [(name, cron, selection, version, enabled)] = shop.rows(
        "SELECT name, cron, asset_selection, version, enabled FROM schedule_definitions"
    )
    assert (name, cron, selection, version, enabled) == ("nightly", "0 6 * * *", ["+revenue@latest"], 1, True)
    assert shop.rows("SELECT name, kind, min_interval_seconds FROM sensor_definitions") == [("landing", "poll", 30)]


def test_deploying_the_same_again_records_nothing(shop: Shop) -> None:
    first = deploy(shop.project, shop.load())
    shop.edit(("import servo\n", "import servo\n\n\n# lines move\n"))
    moved = shop.load()
    assert moved.assets["shop/raw"].spec.source == Source("definitions.py", 11)
    with shop.opened() as other:
        again = deploy(other, moved)
    assert (again.changed, again.event_id) == (False, None)
    assert again.catalog.deployment_id == first.catalog.deployment_id
    assert shop.project.ledger.head().position == 1


def test_ids_are_kept_when_assets_are_renamed_removed_and_brought_back(shop: Shop) -> None:
    first = deploy(shop.project, shop.load()).catalog
    shop.edit(
        ("def orders(raw)", "def clean(raw)"), ("batch=True", "batch=True, renamed_from='orders'"),
        ("revenue(context, orders)", "revenue(context, clean)"), ('@asset(deps=["report"])\ndef page(): ...', ""),
    )  # fmt: skip
    second = deploy(shop.project, shop.load())
    assert (second.catalog.number, second.added, second.removed) == (2, (), ("shop/page",))
    assert second.catalog.asset_id("shop/clean") == first.asset_id("shop/orders")
    assert second.catalog.asset_id("shop/raw") == first.asset_id("shop/raw")
    assert recorded_catalog(shop.project).graph.specs.keys() == second.catalog.graph.specs.keys()
    assert shop.rows("SELECT asset_key FROM asset_definitions WHERE removed_at IS NOT NULL") == [("shop/page",)]
    # The version of the code is the same: only the name has changed.
    assert second.catalog.spec("shop/clean").code_version == first.spec("shop/orders").code_version
    shop.edit(
        ("def clean(raw)", "def pure(raw)"),
        ("renamed_from='orders'", "renamed_from='clean'"),
        ("t, clean)", "t, pure)"),
    )
    shop.edit(("nightly = ", '@asset(deps=["report"])\ndef page(): ...\n\nnightly = '))
    third = deploy(shop.project, shop.load()).catalog
    assert third.asset_id("shop/pure") == first.asset_id("shop/orders")
    assert third.asset_id("shop/page") == first.asset_id("shop/page")
    assert third.number == 3


def test_schedules_and_sensors_keep_ids_versions_and_how_people_switched_them(shop: Shop) -> None:
    def state() -> list[tuple[object, ...]]:
        return shop.rows(
            "SELECT name, schedule_id, version, enabled, deleted_at IS NOT NULL FROM schedule_definitions UNION ALL "
            "SELECT name, sensor_id, version, enabled, deleted_at IS NOT NULL FROM sensor_definitions ORDER BY ALL"
        )

    deploy(shop.project, shop.load())
    [(_, sensor_id, *_), (_, schedule_id, *_)] = state()
    shop.record(
        SchedulePaused(schedule_id=str(schedule_id), version=2), SensorPaused(sensor_id=str(sensor_id), version=2)
    )
    assert not deploy(shop.project, shop.load()).changed
    shop.edit(("0 6 * * *", "0 7 * * *"))
    assert deploy(shop.project, shop.load()).changed
    assert state() == [("landing", sensor_id, 2, False, False), ("nightly", schedule_id, 3, False, False)]
    # What the code now says about it counts more than what somebody said before.
    shop.edit(('select="+revenue@latest"', 'select="+revenue@latest", enabled=False'))
    deploy(shop.project, shop.load())
    shop.edit((", enabled=False", ""))
    deploy(shop.project, shop.load())
    assert state()[1] == ("nightly", schedule_id, 5, True, False)
    text = (shop.root / "definitions.py").read_text()
    shop.write(text[: text.index("nightly =")])
    deploy(shop.project, shop.load())
    assert [row[4] for row in state()] == [True, True]
    assert not deploy(shop.project, shop.load()).changed
    shop.write(text)
    deploy(shop.project, shop.load())
    assert [(row[0], row[1], row[3], row[4]) for row in state()] == [
        ("landing", sensor_id, True, False),
        ("nightly", schedule_id, True, False),
    ]


def test_of_those_who_deploy_at_once_each_knows_what_the_one_before_did(shop: Shop) -> None:
    shop.project.ledger.head()
    versions = []
    for number in range(4):
        shop.write(SHOP.replace("attempts=3", f"attempts={number + 3}"))
        versions.append(shop.load())
    versions.append(versions[0])
    start = threading.Barrier(len(versions))
    failures: list[BaseException] = []

    def work(definitions: Definitions) -> None:
        try:
            with open_workspace(shop.settings) as project:
                start.wait(600)
                deploy(project, definitions)
        except BaseException as problem:  # noqa: BLE001 (told by the main thread)
            failures.append(problem)

    threads = [threading.Thread(target=work, args=(one,)) for one in versions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    events = shop.project.ledger.read(0)
    assert {event.event_type for event in events} == {"DefinitionsDeployed"}
    said = [msgspec.json.decode(event.payload) for event in events]
    assert [one["number"] for one in said] == list(range(1, len(said) + 1))
    assert [one.get("previous_deployment_id") for one in said] == [None, *(one["deployment_id"] for one in said[:-1])]
    assert 4 <= len(said) <= 5
    ids = {frozenset(asset["asset_id"] for asset in one["assets"]) for one in said}
    assert len(ids) == 1  # nobody minted ids for what already had them


def test_the_past_has_the_definitions_of_that_day(shop: Shop) -> None:
    first = deploy(shop.project, shop.load())
    then = shop.project.ledger.read(0)[0]
    shop.edit(("def page()", "def pages()"))
    deploy(shop.project, shop.load())
    assert "shop/pages" in recorded_catalog(shop.project).graph
    for when in (then.event_id, ulid_time(then.event_id) + timedelta(seconds=30)):
        past = recorded_catalog(shop.project, as_of=when)
        assert stored(past) == stored(first.catalog)
        assert past.deployment_id == first.catalog.deployment_id
    assert recorded_catalog(shop.project, as_of=datetime(2020, 1, 1, tzinfo=UTC)).graph.specs == {}


def test_dynamic_partitions_have_the_values_of_the_moment(shop: Shop) -> None:
    shop.write("from servo import Dynamic, asset\n@asset(partitions=Dynamic('tenant'))\ndef a(): ...\n")
    assert deploy(shop.project, shop.load()).catalog.spec("shop/a").partitions.everything(shop.now).count == 0
    shop.record(DynamicPartitionsChanged(change_id="1", dimension="tenant", added=["x", "y"]))
    known = recorded_catalog(shop.project)
    assert known.dynamic == {"tenant": ("x", "y")}
    assert known.spec("shop/a").partitions.everything(shop.now).count == 2
    assert not deploy(shop.project, shop.load()).changed  # what is known of them is not part of the definition
    assert quick_catalog(shop.settings) is None
    assert preview(shop.load(), deployed_state(shop.project)).spec("shop/a").partitions.everything(shop.now).count == 2


def test_a_preview_needs_no_ledger(shop: Shop) -> None:
    definitions = shop.load()
    fresh = preview(definitions, DeployedState(position=0))
    assert stored(fresh) == stored(definitions)
    assert fresh.deployment_id is None
    deployed = deploy(shop.project, definitions).catalog
    assert preview(definitions, deployed_state(shop.project)).asset_ids == deployed.asset_ids


def test_a_preview_knows_an_asset_that_comes_back(shop: Shop) -> None:
    whole = (shop.root / "definitions.py").read_text()
    before = deploy(shop.project, shop.load()).catalog
    shop.write("from servo import asset\n\n@asset\ndef other(context):\n    return None\n")
    assert deploy(shop.project, shop.load()).removed
    (shop.root / "definitions.py").write_text(whole)
    foreseen = preview(shop.load(), deployed_state(shop.project)).asset_ids
    assert foreseen == before.asset_ids
    assert deploy(shop.project, shop.load()).catalog.asset_ids == foreseen


# ── the cache ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def cached(shop: Shop) -> Shop:
    (shop.root / "conf.yaml").write_text("a: 1\n")
    deploy(shop.project, shop.load())
    return shop


def test_the_cache_knows_what_is_deployed(cached: Shop) -> None:
    quick, known = quick_catalog(cached.settings), recorded_catalog(cached.project)
    assert quick is not None
    assert stored(quick) == stored(known)
    assert (quick.asset_ids, quick.deployment_id, quick.number) == (known.asset_ids, known.deployment_id, known.number)
    assert quick.definitions_hash == known.definitions_hash
    (cached.root / "notes.txt").write_text("of no concern")
    (cached.root / ".hidden").mkdir()
    (cached.root / ".hidden" / "x.py").write_text("")
    assert quick_catalog(cached.settings) is not None


def test_whoever_acts_on_the_cache_can_tell_whether_it_is_still_in_force(cached: Shop) -> None:
    known = quick_catalog(cached.settings)
    assert known is not None
    assert in_force(cached.project, known)
    cached.record(SchedulePaused(schedule_id="x", version=2))
    assert in_force(cached.project, known)
    with open_workspace(msgspec.structs.replace(cached.settings, ledger="memory:"), create=True) as other:
        assert not in_force(other, known)
        other.ledger.append(
            [Proposal(fact=SchedulePaused(schedule_id="x", version=2), occurred_at=cached.now, actor="a")]
        )
        assert not in_force(other, known)
    cached.record(DynamicPartitionsChanged(change_id="1", dimension="tenant", added=["x"]))
    assert not in_force(cached.project, known)
    again = deploy(cached.project, cached.load())
    assert not again.changed
    refreshed = quick_catalog(cached.settings)
    assert refreshed is not None
    assert in_force(cached.project, refreshed)
    cached.edit(("attempts=3", "attempts=4"))
    deploy(cached.project, cached.load())
    assert not in_force(cached.project, refreshed)


def test_the_cache_holds_no_longer_than_the_files(cached: Shop) -> None:
    for path in (cached.root / "definitions.py", cached.root / "conf.yaml"):
        data, times = path.read_bytes(), path.stat()
        path.write_bytes(data + b"\n")
        assert quick_catalog(cached.settings) is None
        path.write_bytes(data)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert quick_catalog(cached.settings) is not None
    new = cached.root / "lib" / "new.sql"
    new.parent.mkdir()
    new.write_text("")
    assert quick_catalog(cached.settings) is None
    new.unlink()
    assert quick_catalog(cached.settings) is not None
    (cached.root / "conf.yaml").unlink()
    assert quick_catalog(cached.settings) is None


def test_the_cache_belongs_to_its_settings(cached: Shop) -> None:
    for name in ("namespace", "workspace", "definitions"):
        assert quick_catalog(msgspec.structs.replace(cached.settings, **{name: "other"})) is None
    assert "postgresql" not in (cached.settings.home / "definitions-cache.json").read_text()


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b'{"below": []}'])
def test_a_damaged_cache_is_none(cached: Shop, damage: bytes) -> None:
    (cached.settings.home / "definitions-cache.json").write_bytes(damage)
    assert quick_catalog(cached.settings) is None


def test_a_cut_cache_is_none(cached: Shop) -> None:
    file = cached.settings.home / "definitions-cache.json"
    data = file.read_bytes()
    for size in range(0, len(data), max(1, len(data) // 50)):
        file.write_bytes(data[:size])
        assert quick_catalog(cached.settings) is None


def test_too_many_files_are_not_looked_at(cached: Shop) -> None:
    folder = cached.root / "landing"
    folder.mkdir()
    for number in range(5_001):
        (folder / f"{number}.json").touch()
    assert quick_catalog(cached.settings) is None
    deploy(cached.project, cached.load())
    assert not (cached.settings.home / "definitions-cache.json").exists()


def test_the_cache_loads_neither_the_users_code_nor_what_is_slow(cached: Shop) -> None:
    script = """
        import sys
        from servo.runtime.definitions_cache import quick_catalog
        from servo.runtime.settings import load_settings
        assert quick_catalog(load_settings()) is not None
        print(sorted({"definitions", "pyspark", "duckdb", "pyarrow", "psycopg"} & sys.modules.keys()))
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(script)], cwd=cached.root, env={**os.environ, "SERVO_NAMESPACE": "shop"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_an_edited_sensor_is_a_new_deployment(shop: Shop) -> None:
    versions = "SELECT name, version FROM sensor_definitions"
    deploy(shop.project, shop.load())
    shop.edit(("def landing(context): ...", "def landing(context):\n    # a word\n    ..."))
    assert not deploy(shop.project, shop.load()).changed
    assert shop.rows(versions) == [("landing", 1)]
    shop.edit(("    ...", "    context.cursor = 'x'"))
    assert deploy(shop.project, shop.load()).changed
    assert shop.rows(versions) == [("landing", 2)]
    assert not deploy(shop.project, shop.load()).changed
