"""How fast it is told which partitions are stale."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import duckdb

from bench.figure import Figure, alternating, seconds
from servo.assets.graph import Graph
from servo.assets.spec import AssetSpec, Dependency, Source
from servo.events import Proposal
from servo.events.columns import InputPartitions, Outcome, PartitionOutcomes
from servo.events.model import DefinitionsDeployed, TaskFinished
from servo.ids import ulid_range
from servo.partitions import Daily, Partitions
from servo.planning.deployed import definition_of
from servo.runtime import load_settings, open_workspace
from servo.runtime.states import state_of
from servo.status.staleness import stale_counts
from servo.status.staleness_cache import refresh_cache

SET = 1_000
FIRST_DAY = date(1970, 1, 2)
EVERY = 100  # one in so many partitions of the first asset is computed again, with other content
TIMES = 5
FEW = 100
# The least that has to be joined: what each partition read, and what is current of that now.
BARE = """
    SELECT count(*) FROM {status} AS status
    JOIN {lineage} AS lineage ON lineage.materialization_id = status.materialization_id
    JOIN {status} AS input ON input.asset_id = lineage.upstream_asset_id
     AND input.partition_key = lineage.upstream_partition_key
    WHERE input.materialization_id <> lineage.upstream_materialization_id
"""


class Chain:
    """Assets of days, each made from the one before it, day by day; recorded through the ledger like any other."""

    def __init__(self, assets: int, days: int) -> None:
        # Removed with the process at the latest.
        self._folder = tempfile.TemporaryDirectory(prefix="servo-bench-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        self.project = open_workspace(load_settings(folder, {"SERVO_LEDGER": f"sqlite:{folder / 'l.db'}"}), create=True)
        self.keys = [f"date=d:{FIRST_DAY + timedelta(days=number)}" for number in range(days)]
        self.names = [f"bench/asset_{number:04d}" for number in range(assets)]
        self.size = assets * days
        self._ids = {name: str(uuid5(NAMESPACE_URL, name)) for name in self.names}
        self._made: dict[str, list[str]] = {}
        self._deploy()
        for name in self.names:
            self._compute(name, self.keys)
        changed = self.keys[::EVERY]
        self._compute(self.names[0], changed)
        self.stale = len(changed)
        self.settle()

    def settle(self) -> None:
        with self.project.compactor() as compactor:
            compactor.replay()

    def again(self, keys: list[str]) -> None:
        """An event for each of some partitions of an asset in the middle, which is computed once more."""
        name = self.names[len(self.names) // 2]
        self.project.ledger.append([self._finished(name, [key], [self.project.mint()]) for key in keys])

    def files(self, table: str) -> str:
        store = self.project.store
        return f"read_parquet({[str(store.path(table, file)) for file in store.current().tables[table]]})"

    def _deploy(self) -> None:
        days = Partitions.of(Daily("date", start=str(FIRST_DAY)))
        specs = [
            AssetSpec(
                key=name,
                partitions=days,
                dependencies=(Dependency(upstream=self.names[n - 1], parameter=None),) if n else (),
                code_version="1",
                source=Source("bench.py", 1),
                freshness=timedelta(days=365) if n == len(self.names) - 1 else None,
            )
            for n, name in enumerate(self.names)
        ]
        fact = DefinitionsDeployed(
            deployment_id="bench",
            number=1,
            definitions_hash="bench",
            assets=[definition_of(one, self._ids) for one in Graph.of(specs).specs.values()],
        )
        self.project.ledger.append([Proposal(fact=fact, occurred_at=datetime.now(UTC), actor="bench")])

    def _compute(self, name: str, keys: list[str]) -> None:
        proposals = []
        whole = len(keys) == len(self.keys)
        made = self._made.setdefault(name, [])
        for start in range(0, len(keys), SET):
            some = keys[start : start + SET]
            ids = ulid_range(self.project.mint(len(some)), len(some))
            proposals.append(self._finished(name, some, ids, start if whole else None))
            if whole:
                made += ids
        for start in range(0, len(proposals), 20):
            self.project.ledger.append(proposals[start : start + 20])

    def _finished(self, name: str, keys: list[str], ids: list[str], start: int | None = None) -> Proposal:
        place = self.names.index(name)
        inputs = []
        if place:
            upstream = self.names[place - 1]
            there = self._made[upstream]
            read = there[start : start + len(keys)] if start is not None else [there[self.keys.index(k)] for k in keys]
            inputs = [
                InputPartitions(
                    asset_id=self._ids[upstream], asset_key=upstream, keys=keys, materialization_ids=read, edges=None
                )
            ]
        fact = TaskFinished(
            run_id=f"run_{os.urandom(13).hex()}",
            task_key=name,
            attempt=1,
            asset_id=self._ids[name],
            asset_key=name,
            outcome=Outcome.SUCCEEDED,
            code_version="1",
            partitions=PartitionOutcomes(
                keys=keys,
                first_materialization_id=ids[0],
                rows=1,
                bytes=1,
                files=1,
                content_hash=[os.urandom(16).hex() for _ in keys],
            ),
            inputs=inputs,
        )
        return Proposal(fact=fact, occurred_at=datetime.now(UTC), actor="worker:bench")


@cache
def _long() -> Chain:
    return Chain(assets=10, days=100_000)


@cache
def _wide() -> Chain:
    return Chain(assets=500, days=2_000)


def stale_long() -> Iterator[Figure]:
    """10 assets of 100,000 partitions."""
    yield _cold(_long(), "stale.long")


def stale_wide() -> Iterator[Figure]:
    """500 assets of 2,000 partitions."""
    yield _cold(_wide(), "stale.wide")


def _cold(chain: Chain, name: str) -> Figure:
    """By a process that has looked at nothing yet, against the bare join of the same files on a connection as new."""
    bare = BARE.format(status=chain.files("partition_status"), lineage=chain.files("lineage"))

    def ask() -> None:
        with open_workspace(chain.project.settings) as project:
            assert sum(stale_counts(state_of(project)).values()) == chain.stale

    def join() -> None:
        with duckdb.connect() as connection:
            assert connection.execute(bare).fetchall() == [(chain.stale,)]

    ours, theirs = alternating(ask, join, times=TIMES)
    return Figure(
        id=name,
        value=ours,
        unit="s",
        size=chain.size,
        ratio=ours / theirs,
        baseline="bare DuckDB join of status and lineage",
        aim="value < 2, ratio <= 3",
    )


def stale_deep() -> Iterator[Figure]:
    """What is stale by its inputs too, along 200 assets one after another; against as many partitions of 10 assets."""
    deep, flat = Chain(assets=200, days=500), Chain(assets=10, days=10_000)

    def asking(chain: Chain) -> Callable[[], None]:
        expected = len(chain.keys[::EVERY]) * (len(chain.names) - 1)

        def ask() -> None:
            assert sum(stale_counts(state_of(chain.project), transitive=True).values()) == expected

        return ask

    ours, theirs = alternating(asking(deep), asking(flat), times=TIMES)
    yield Figure(
        id="stale.deep",
        value=ours,
        unit="s",
        size=deep.size,
        ratio=ours / theirs,
        baseline="as many partitions of 10 assets",
        aim="value < 2",
    )


def stale_after_few() -> Iterator[Figure]:
    """100 new events after a sweep, by a process that has answered before: of the newest days, and of days anywhere."""
    keys = _long().keys
    yield _after(_long(), "stale.after_few", keys[-FEW:])
    yield _after(_long(), "stale.after_few_anywhere", keys[1 :: len(keys) // FEW][:FEW])


def _after(chain: Chain, name: str, keys: list[str]) -> Figure:
    bare = BARE.format(status=chain.files("partition_status"), lineage=chain.files("lineage"))
    project = chain.project
    spent, joined = [], []
    for _ in range(TIMES):
        refresh_cache(state_of(project), project.mint)
        chain.again(keys)
        spent.append(seconds(lambda: stale_counts(state_of(project))))
        with duckdb.connect() as connection:
            joined.append(seconds(lambda: connection.execute(bare).fetchall()))
    if stale_counts(state_of(project)) != stale_counts(state_of(project), cached=False):
        raise RuntimeError("the sweep and the whole query disagree")
    return Figure(
        id=name,
        value=statistics.median(spent),
        unit="s",
        size=FEW,
        ratio=statistics.median(spent) / statistics.median(joined),
        baseline="bare DuckDB join of status and lineage",
        aim="value < 0.2",
    )
