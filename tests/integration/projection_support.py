"""What tests of projections share: a workspace on disk, a history of every kind of fact, and rows to compare."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb

from servo.clock import Clock, system_clock
from servo.events import Proposal, RecordedEvent
from servo.events.access import RequestAccepted, TokenCreated, TokenRevoked
from servo.events.automation import (
    BackfillChunkPlanned,
    BackfillCreated,
    BackfillStateChanged,
    ScheduleCreated,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleResumed,
    ScheduleTicked,
    ScheduleUpdated,
    SensorCreated,
    SensorCursorReset,
    SensorDeleted,
    SensorEvaluated,
    SensorPaused,
    SensorResumed,
    SensorUpdated,
)
from servo.events.columns import (
    CheckOutcomes,
    EarlierMaterializations,
    InputPartitions,
    Outcome,
    PartitionOutcomes,
    PartitionSet,
)
from servo.events.definitions import (
    AssetDefinition,
    Dependency,
    PlannedTask,
    ScheduleDefinition,
    SensorDefinition,
    Source,
    Upstream,
)
from servo.events.fact import Fact
from servo.events.model import (
    CheckpointDecided,
    CheckpointExpired,
    CheckpointRequested,
    CodeDeclaredEqual,
    DefinitionsDeployed,
    DynamicPartitionsChanged,
    MaterializationPublished,
    PartitionsInvalidated,
    PartitionsMarked,
    RolledBack,
    RunCancelRequested,
    RunFinished,
    RunPlanned,
    RunRequested,
    RunStarted,
    TaskFinished,
    TaskRetryScheduled,
    TaskStarted,
)
from servo.fold import TABLES, TABLES_BY_NAME, State, fold
from servo.fold.rows import columns
from servo.ids import UlidFactory
from servo.ledger import Workspace, open_ledger
from servo.ledger.archive import Archive
from servo.ledger.history import History
from servo.ledger.protocol import Ledger
from servo.partitions import PartitionKey
from servo.projections import Manifest, Reader, Snapshot, Store, TailLimits
from servo.projections.compactor import MEMORY, Compactor

NOW = datetime(2025, 1, 15, 12, 0, 0, 123456, tzinfo=UTC)
WORKSPACE = Workspace("acme", "main")
# Far more than a test needs: so that a slow machine does not decide what a read sees.
PATIENT = TailLimits(fold_seconds=60.0)
Rows = dict[str, list[tuple[Any, ...]]]


@dataclass
class Ticking:
    """A clock that goes on by a step whenever it is looked at: every event has a millisecond of its own."""

    now: datetime = NOW
    step: timedelta = timedelta(milliseconds=10)

    def __call__(self) -> datetime:
        self.now += self.step
        return self.now


@dataclass
class Place:
    """A workspace in a folder: a SQLite ledger, its archive, its projections."""

    folder: Path
    clock: Clock = system_clock
    url: str | None = None
    memory: int = MEMORY
    _ledger: Ledger | None = None
    _mint: UlidFactory = field(init=False)

    def __post_init__(self) -> None:
        self._mint = UlidFactory(self.clock, os.urandom)

    @property
    def ledger(self) -> Ledger:
        if self._ledger is None:
            self._ledger = open_ledger(self.url or f"sqlite:{self.ledger_path}", WORKSPACE, clock=self.clock)
        return self._ledger

    def mint_text(self) -> str:
        return self._mint.next()

    @property
    def ledger_path(self) -> Path:
        return self.folder / "ledger.db"

    @property
    def store(self) -> Store:
        return Store(self.folder / "projections")

    @property
    def history(self) -> History:
        return History(self.ledger, self.archive)

    @property
    def archive(self) -> Archive:
        return Archive(self.folder / "archive", WORKSPACE)

    def events(self, until: int | None = None) -> list[RecordedEvent]:
        return list(self.history.events(0, until))

    def fold(self, until: int | None = None) -> State:
        return fold(self.events(until))

    def reader(self, limits: TailLimits = PATIENT) -> Reader:
        return Reader(self.store, self.history, clock=self.clock, limits=limits)

    @contextmanager
    def compactor(self) -> Iterator[Compactor]:
        compactor = Compactor(self.store, self.history, clock=self.clock, mint=self.mint_text, memory=self.memory)
        try:
            yield compactor
        finally:
            compactor.close()

    def compact(self) -> Manifest:
        with self.compactor() as compactor:
            return compactor.compact()

    def replay(self) -> Manifest:
        with self.compactor() as compactor:
            return compactor.replay()

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None


# ── rows to compare ──────────────────────────────────────────────────────────────────────────────────────────────


def rows_of_fold(state: State) -> Rows:
    """Every column of every row that the fold gives, in the order of the tables' files."""
    return {
        table.table: _sorted(
            tuple(getattr(row, name) for name in columns(table)) for row in state.get(table.table, {}).values()
        )
        for table in TABLES
    }


def rows_of(snapshot: Snapshot) -> Rows:
    """The same as a snapshot answers it, after a look at the columns and at the watermark on each answer."""
    found = {}
    for table in TABLES:
        answer = snapshot.query(f"SELECT * FROM {table.table}")
        assert answer.columns == list(columns(table))
        assert answer.watermark == snapshot.watermark
        found[table.table] = _sorted(answer.rows)
        # The same where the table lives in rows.
        assert _sorted(snapshot.tables().query(f"SELECT * FROM {table.table}").rows) == found[table.table]
    return found


def _sorted(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr_of_texts)


def repr_of_texts(row: tuple[Any, ...]) -> str:
    """Times are left out of the order alone: the same moment is written in more than one way."""
    return repr([None if isinstance(value, datetime) else value for value in row])


def assert_same(found: Rows, expected: Rows) -> None:
    for table, rows in expected.items():
        assert len(found[table]) == len(rows), f"{table} has {len(found[table])} rows instead of {len(rows)}"
        for one, other in zip(found[table], rows, strict=True):
            both = zip(columns(TABLES_BY_NAME[table]), one, other, strict=True)
            unequal = {name: (left, right) for name, left, right in both if left != right}
            assert not unequal, f"{table}: {unequal}"


def differences(one: tuple[Store, Manifest], other: tuple[Store, Manifest]) -> dict[str, int]:
    """By table, how many rows only one of two versions has, over what a reader would see."""
    left, right = (Snapshot(store, manifest, None, manifest.watermark) for store, manifest in (one, other))
    found = {}
    for table in sorted(one[1].tables.keys() | other[1].tables.keys()):
        rows = [Counter(map(repr, side.query(f"SELECT * FROM {table}").rows)) for side in (left, right)]
        count = (rows[0] - rows[1]).total() + (rows[1] - rows[0]).total()
        if count:
            found[table] = count
    left.close()
    right.close()
    return found


def whole(store: Store, manifest: Manifest) -> None:
    """Every file that the version names is there, opens, and has the rows and bytes that it says."""
    with duckdb.connect() as connection:
        for table, files in manifest.tables.items():
            for file in files:
                path = store.path(table, file)
                assert path.stat().st_size == file.bytes
                counted = connection.execute("SELECT count(*) FROM read_parquet(?)", [str(path)]).fetchall()
                assert counted == [(file.rows,)], path


# ── simple histories ─────────────────────────────────────────────────────────────────────────────────────────────


def cancel(number: int | str, occurred_at: datetime = NOW) -> Proposal:
    """A fact that makes exactly one row of `runs`: after position p there are p of them."""
    return Proposal(fact=RunCancelRequested(run_id=f"run_{number}"), occurred_at=occurred_at, actor="tester")


def cancels(count: int, prefix: str = "") -> list[Proposal]:
    return [cancel(f"{prefix}{number}") for number in range(count)]


def finished(
    number: int, keys: list[str], ids: Callable[[], str], run: str = "run", hashes: list[str | None] | None = None
) -> Proposal:
    """A task over a set of partitions that all succeeded."""
    content_hash = hashes or f"h{number}"
    partitions = PartitionOutcomes(keys=keys, first_materialization_id=ids(), rows=number, content_hash=content_hash)
    fact = TaskFinished(
        run_id=f"{run}_{number}",
        task_key="t",
        attempt=1,
        asset_id="as_1",
        asset_key="sales/orders",
        outcome=Outcome.SUCCEEDED,
        partitions=partitions,
        code_version="v1",
    )
    return Proposal(fact=fact, occurred_at=NOW + timedelta(seconds=number), actor="worker")


# ── a history of everything ──────────────────────────────────────────────────────────────────────────────────────

_KEYS = [
    "",
    *(f"date=d:2024-01-{day:02d}" for day in range(1, 29)),
    *(str(PartitionKey.of({"region": "us, east", "hour": NOW + timedelta(hours=n)})) for n in range(9)),
    *(str(PartitionKey.of({"region": "ü=:", "hour": NOW + timedelta(hours=n)})) for n in range(9)),
    *(str(PartitionKey.of({"shard": n, "active": n % 2 == 0, "zone": None})) for n in range(-4, 5)),
]  # fmt: skip
_ASSETS = [(f"as_{number}", f"sales/table_{number}") for number in range(4)]


def mixed(count: int, seed: int = 7) -> list[Proposal]:
    """A deterministic history of every kind of fact, over ids few enough to meet again, in moments out of order."""
    return _Mixed(Random(seed)).proposals(count)


class _Mixed:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.number = self.turn = 0
        self.made: list[tuple[str, str, str]] = []  # (asset id, key, materialization id)
        self.ids = UlidFactory(lambda: NOW, random.randbytes).next
        self.facts: list[Callable[[], Fact]] = [
            self.deployed, self.code_equal, self.dynamic, self.schedule_created, self.schedule_updated,
            self.schedule_paused, self.schedule_resumed, self.schedule_deleted, self.ticked, self.sensor_created,
            self.sensor_updated, self.sensor_paused, self.sensor_resumed, self.sensor_deleted, self.cursor_reset,
            self.evaluated, self.requested, self.requested, self.planned, self.started, self.run_finished,
            self.cancelled, self.task_started, self.task_retry, self.task_finished, self.task_finished,
            self.task_finished, self.backfill, self.chunk, self.backfill_state, self.checkpoint, self.decided,
            self.expired, self.published, self.published, self.invalidated, self.rolled_back, self.marked,
            self.marked, self.token, self.token_revoked, self.accepted,
        ]  # fmt: skip

    def proposals(self, count: int) -> list[Proposal]:
        found = []
        while len(found) < count:
            # Each round has every kind, in an order of its own.
            self.turn += 1
            for make in self.random.sample(self.facts, len(self.facts)):
                self.number += 1
                late = timedelta(seconds=self.random.randint(-3600, 3600), microseconds=self.random.randint(0, 999999))
                actor = self.random.choice(["ann", "bob", "controller:loop"])
                found.append(Proposal(fact=make(), occurred_at=NOW + late, actor=actor))
        return found[:count]

    # ── parts ────────────────────────────────────────────────────────────────────────────────────────────────

    def pick(self, prefix: str, most: int = 9) -> str:
        return f"{prefix}_{self.random.randrange(most)}"

    def maybe(self, value: Any) -> Any:
        return self.random.choice([value, None])

    def keys(self) -> list[str]:
        return self.random.sample(_KEYS, self.random.choice([1, 3, 12, 40]))

    def moment(self) -> datetime:
        return NOW + timedelta(microseconds=self.random.randrange(10**12))

    def source(self) -> Source:
        kind = self.random.choice(["schedule", "sensor", "backfill", "manual"])
        detail = str(self.random.randrange(4)) if kind == "backfill" else self.maybe("tick")
        return Source(kind=kind, id=self.pick("bf" if kind == "backfill" else kind, 4), detail=detail)

    def partitions(self, asset_id: str, outcomes: list[Outcome]) -> PartitionOutcomes:
        keys = self.keys()
        each = self.random.random() < 0.6
        count = len(keys)
        made = PartitionOutcomes(
            keys=keys,
            outcome=self.random.choices(outcomes, k=count) if each else self.random.choice(outcomes),
            first_materialization_id=self.random.choice([self.ids(), self.ids(), None]),
            rows=[self.maybe(n) for n in range(count)] if each else self.maybe(5),
            bytes=[1000 + n for n in range(count)] if each else None,
            files=2,
            content_hash=[self.maybe(f"hash{n}") for n in range(count)] if each else self.maybe("same"),
        )
        if made.first_materialization_id is not None:
            ids = zip(keys, made.materialization_ids(), strict=True)
            self.made += [(asset_id, key, made_id) for key, made_id in ids if made_id]
        return made

    def inputs(self, outputs: int) -> list[InputPartitions]:
        # A materialization belongs to one partition, so it is read as one.
        made = list({entry[2]: entry for entry in self.made}.values())
        read = self.random.sample(made, min(len(made), self.random.choice([0, 1, 4])))
        edges = [self.random.sample(range(len(read)), self.random.randint(0, len(read))) for _ in range(outputs)]
        return [
            InputPartitions(
                asset_id="as_0",
                asset_key="sales/table_0",
                keys=[key for _, key, _ in read],
                materialization_ids=[made for _, _, made in read],
                edges=self.maybe(edges),
            )
        ] * (1 if read else 0)

    def checks(self) -> list[CheckOutcomes]:
        keys = self.keys()
        return [
            CheckOutcomes(name="not_null", keys=keys, passed=[self.random.random() < 0.9 for _ in keys], blocking=True),
            CheckOutcomes(name="in_range", keys=keys[:2], observed=[self.maybe("0.5") for _ in keys[:2]]),
        ][: self.random.randint(0, 2)]

    # ── facts ────────────────────────────────────────────────────────────────────────────────────────────────

    def deployed(self) -> Fact:
        assets = [
            AssetDefinition(
                asset_id=asset_id,
                asset_key=asset_key,
                code_version=f"v{self.number}",
                partitions=self.maybe({"kind": "daily", "start": "2024-01-01"}),
                dependencies=[Dependency(asset_id="as_0", asset_key="sales/table_0", mapping={"kind": "same"})],
                group=self.maybe("core"),
                owners=["ann", "bob"][: self.random.randint(0, 2)],
                tags={"tier": "gold", "ü": "x,y"} if self.random.random() < 0.5 else {},
                description=self.maybe("What was ordered"),
                freshness_seconds=self.maybe(3600),
                settings={"cores": 2},
                reached={"helpers.py:clean": f"{self.number:08d}"},
                same_code_as=self.maybe(f"v{self.number - 1}"),
            )
            for asset_id, asset_key in self.random.sample(_ASSETS, 2)
        ]  # fmt: skip
        return DefinitionsDeployed(
            deployment_id=f"dep_{self.number}",
            number=self.number,
            definitions_hash=f"hash_{self.number}",
            previous_deployment_id=self.maybe("dep_0"),
            assets=assets,
            schedules=[self.schedule("sched_deployed")],
            sensors=[self.sensor("sens_deployed")],
            removed_asset_ids=sorted({asset_id for asset_id, _ in _ASSETS} - {asset.asset_id for asset in assets})[:1],
            git_commit=self.maybe("9fceb02d"),
            git_clean=self.maybe(True),
        )

    def code_equal(self) -> Fact:
        return CodeDeclaredEqual(
            declaration_id=f"equal_{self.number}",
            asset_id=_ASSETS[0][0],
            asset_key=_ASSETS[0][1],
            code_version=f"v{self.number}",
            equal_to=["v1", "v2"][: self.random.randint(0, 2)],
            reason="refactored",
        )

    def dynamic(self) -> Fact:
        values = [self.pick("customer", 12) for _ in range(6)]
        return DynamicPartitionsChanged(
            change_id=f"change_{self.number}", dimension="customer", added=values[:4], removed=values[3:]
        )

    def schedule(self, schedule_id: str) -> ScheduleDefinition:
        return ScheduleDefinition(
            schedule_id=schedule_id,
            version=self.number,
            name="nightly",
            cron="0 3 * * *",
            asset_selection=["sales/table_0"],
            timezone="Europe/Berlin",
            enabled=self.random.random() < 0.5,
            settings={"window": 1},
        )

    def schedule_created(self) -> Fact:
        return ScheduleCreated(definition=self.schedule(self.pick("sched", 4)))

    def schedule_updated(self) -> Fact:
        return ScheduleUpdated(definition=self.schedule(self.pick("sched", 4)))

    def schedule_paused(self) -> Fact:
        return SchedulePaused(schedule_id=self.pick("sched", 4), version=self.number, reason="holiday")

    def schedule_resumed(self) -> Fact:
        return ScheduleResumed(schedule_id=self.pick("sched", 4), version=self.number)

    def schedule_deleted(self) -> Fact:
        return ScheduleDeleted(schedule_id=self.pick("sched", 4), version=self.number)

    def ticked(self) -> Fact:
        return ScheduleTicked(
            tick_id=f"tick_{self.number}",
            schedule_id=self.pick("sched", 4),
            scheduled_for=self.moment(),
            definition_version=3,
            status=self.random.choice(["TRIGGERED", "SKIPPED"]),
            manual=self.random.random() < 0.3,
            asset_selection=["sales/table_0", "sales/table_1"],
            partition_selection=self.maybe(_KEYS[1:3]),
            run_key=self.maybe(f"sched:{self.number}"),
            reason=self.maybe("nothing new"),
        )

    def sensor(self, sensor_id: str) -> SensorDefinition:
        return SensorDefinition(sensor_id=sensor_id, version=self.number, name="files", kind="poll", settings={"a": 1})

    def sensor_created(self) -> Fact:
        return SensorCreated(definition=self.sensor(self.pick("sens", 4)))

    def sensor_updated(self) -> Fact:
        return SensorUpdated(definition=self.sensor(self.pick("sens", 4)))

    def sensor_paused(self) -> Fact:
        return SensorPaused(sensor_id=self.pick("sens", 4), version=self.number)

    def sensor_resumed(self) -> Fact:
        return SensorResumed(sensor_id=self.pick("sens", 4), version=self.number)

    def sensor_deleted(self) -> Fact:
        return SensorDeleted(sensor_id=self.pick("sens", 4), version=self.number)

    def cursor_reset(self) -> Fact:
        return SensorCursorReset(sensor_id=self.pick("sens", 4), state_version=self.number, cursor=self.maybe("c"))

    def evaluated(self) -> Fact:
        return SensorEvaluated(
            eval_id=f"eval_{self.number}",
            sensor_id=self.pick("sens", 4),
            trigger=self.random.choice(["push", "poll", "manual"]),
            status=self.random.choice(["TRIGGERED", "NO_DATA", "FAILED"]),
            message_id=f"m{self.number}",
            poll_epoch=self.number,
            request_id=f"q{self.number}",
            expected_state_version=self.maybe(self.number),
            cursor_before=self.maybe("before"),
            cursor_after=self.maybe("after"),
            run_keys=["sensor:1", "sensor:2"][: self.random.randint(0, 2)],
        )

    def requested(self) -> Fact:
        # Few keys: the same one comes again with the same and with another fingerprint.
        return RunRequested(
            run_id=self.pick("run"),
            run_key=self.pick("key", 6),
            request_fingerprint=f"fingerprint_{self.number}",
            asset_selection=["sales/table_0"],
            source=self.source(),
            partitions=self.maybe({"keys": _KEYS[1:3]}),
            priority=self.random.randrange(3),
            tags=self.random.choice([{}, {"team": "ü"}]),
        )

    def planned(self) -> Fact:
        tasks = [
            PlannedTask(
                task_key=f"task_{n}",
                asset_id=f"as_{n}",
                asset_key=f"sales/table_{n}",
                partition_count=7,
                partitions=self.maybe({"all": True}),
                upstream=[f"task_{m}" for m in range(n)],
                code_version=self.maybe("v1"),
            )
            for n in range(3)
        ]
        return RunPlanned(run_id=f"run_planned_{self.number}", tasks=tasks, deployment_id=self.maybe("dep_1"))

    def started(self) -> Fact:
        return RunStarted(run_id=f"run_s{self.number}", source=self.source())

    def run_finished(self) -> Fact:
        return RunFinished(
            run_id=f"run_f{self.number}",
            outcome=self.random.choice([Outcome.SUCCEEDED, Outcome.FAILED]),
            source=self.source(),
            tasks_succeeded=4,
            reason=self.maybe("because"),
        )

    def cancelled(self) -> Fact:
        return RunCancelRequested(run_id=f"run_c{self.number}", reason=self.maybe("enough"))

    def task_started(self) -> Fact:
        return TaskStarted(
            run_id=self.pick("run"),
            task_key=self.pick("task", 3),
            attempt=self.number,
            asset_id="as_1",
            asset_key="sales/table_1",
            partition_count=3,
            worker=self.maybe("w1"),
            spark_application_id=self.maybe("app-1"),
        )

    def task_retry(self) -> Fact:
        return TaskRetryScheduled(
            run_id=self.pick("run"), task_key=self.pick("task", 3), attempt=self.number, retry_at=self.moment()
        )

    def task_finished(self) -> Fact:
        asset_id, asset_key = self.random.choice(_ASSETS)
        partitions = self.partitions(asset_id, list(Outcome))
        return TaskFinished(
            run_id=self.pick("run"),
            task_key=self.pick("task", 3),
            attempt=self.number,
            asset_id=asset_id,
            asset_key=asset_key,
            outcome=self.random.choice(list(Outcome)),
            partitions=partitions,
            part=self.maybe(2),
            final=self.random.random() < 0.7,
            code_version=self.maybe(f"v{self.number}"),
            inputs=self.inputs(len(partitions)),
            checks=self.checks(),
            succeeded_so_far=self.maybe(11),
            error=self.maybe("it broke"),
        )

    def backfill(self) -> Fact:
        return BackfillCreated(
            backfill_id=self.pick("bf", 4),
            name="again",
            asset_selection=["sales/table_0"],
            selector={"from": "2024-01-01", "to": "2024-02-01"},
            total_partitions=31,
            client_request_id=f"request_{self.number}",
            upstreams=[Upstream(backfill_id="bf_0", asset_key="sales/table_0")][: self.random.randint(0, 1)],
            warnings=["many"][: self.random.randint(0, 1)],
        )

    def chunk(self) -> Fact:
        return BackfillChunkPlanned(
            backfill_id=self.pick("bf", 4),
            chunk_index=self.number,
            partitions={"keys": _KEYS[1:4]},
            partition_count=3,
            run_key=f"backfill:{self.number}",
            run_id=self.pick("run"),
            request_fingerprint="f",
        )

    def backfill_state(self) -> Fact:
        return BackfillStateChanged(
            backfill_id=self.pick("bf", 4),
            state=self.random.choice(["RUNNING", "PAUSED", "SUCCEEDED"]),
            state_version=self.number,
            reason=self.maybe("why not"),
        )

    def checkpoint(self) -> Fact:
        return CheckpointRequested(
            checkpoint_id=f"check_{self.turn}",
            name="release",
            run_id=self.pick("run"),
            task_key="task_0",
            asset_id="as_1",
            asset_key="sales/table_1",
            partitions=self.partitions("as_1", [Outcome.STAGED]),
            approvers=self.maybe("finance"),
            four_eyes=True,
            deadline=self.maybe(self.moment()),
        )

    def decided(self) -> Fact:
        return CheckpointDecided(
            checkpoint_id=f"check_{self.turn}",
            decision=self.random.choice(["APPROVED", "REJECTED"]),
            reason=self.maybe("fine"),
        )

    def expired(self) -> Fact:
        return CheckpointExpired(checkpoint_id=f"check_{self.turn}", escalated_to=self.maybe("boss"))

    def published(self) -> Fact:
        asset_id, asset_key = self.random.choice(_ASSETS)
        partitions = self.partitions(asset_id, [Outcome.SUCCEEDED])
        return MaterializationPublished(
            publication_id=f"publication_{self.number}",
            asset_id=asset_id,
            asset_key=asset_key,
            partitions=partitions,
            run_id=self.maybe("run_1"),
            task_key=self.maybe("task_1"),
            inputs=self.inputs(len(partitions)),
        )

    def invalidated(self) -> Fact:
        sets = [PartitionSet(asset_id=one, asset_key=key, keys=self.keys()) for one, key in _ASSETS[:2]]
        return PartitionsInvalidated(invalidation_id=f"inv_{self.number}", sets=sets, reason="bad source")

    def rolled_back(self) -> Fact:
        earlier = {key: made for _, key, made in self.made if _ == "as_2"}
        keys = list(earlier)[:5]
        return RolledBack(
            rollback_id=f"back_{self.number}",
            asset_id="as_2",
            asset_key="sales/table_2",
            partitions=EarlierMaterializations(
                keys=keys,
                materialization_ids=[earlier[key] for key in keys],
                run_ids=[self.maybe("run_2") for _ in keys],
                materialized_at=[self.moment() for _ in keys],
                code_version=self.maybe("v0"),
                content_hash=[self.maybe("old") for _ in keys],
            ),
            reason="bad release",
        )

    def marked(self) -> Fact:
        mark = self.random.choice(["MATERIALIZED", "FROZEN", "THAWED"])
        return PartitionsMarked(
            mark_id=f"mark_{self.number}",
            asset_id="as_3",
            asset_key="sales/table_3",
            mark=mark,
            partitions=self.partitions("as_3", [Outcome.SUCCEEDED]),
        )

    def token(self) -> Fact:
        return TokenCreated(
            token_id=f"token_{self.number}",
            name=self.pick("name", 3),
            role=self.random.choice(["viewer", "admin"]),
            secret_hash=f"{self.number:064x}",
            expires_at=self.maybe(self.moment()),
        )

    def token_revoked(self) -> Fact:
        return TokenRevoked(token_id=f"token_{self.number - 1}", name=self.pick("name", 3), reason=self.maybe("lost"))

    def accepted(self) -> Fact:
        return RequestAccepted(
            request_id=f"key_{self.number}", action="POST /runs", fingerprint="f", attempt=f"attempt_{self.number}"
        )
