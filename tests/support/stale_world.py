"""Small worlds for staleness: random graphs and histories, recorded in a real ledger and read by the real reader."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from servo.assets.graph import Graph
from servo.assets.spec import AssetSpec
from servo.errors import InvalidDefinition, InvalidInput
from servo.events import Proposal, RecordedEvent
from servo.events.columns import EarlierMaterializations, InputPartitions, Outcome, PartitionOutcomes, PartitionSet
from servo.events.fact import Fact
from servo.events.model import (
    CodeDeclaredEqual,
    DefinitionsDeployed,
    DynamicPartitionsChanged,
    MaterializationPublished,
    PartitionsInvalidated,
    PartitionsMarked,
    RolledBack,
    TaskFinished,
)
from servo.partitions import Daily, Dynamic, Monthly, Partitions, Static
from servo.partitions.mappings import All, Explicit, Identity, Last, Lookback, Mapping, Offset, default_mapping
from servo.planning.catalog import Catalog
from servo.planning.deployed import definition_of
from servo.runtime import Project, load_settings, open_workspace
from tests.support.catalogs import asset_id, spec

START = datetime(2025, 1, 29, 6, tzinfo=UTC)


class Hands:
    """A project with a memory ledger, and short ways to make things happen in it."""

    def __init__(self, folder: Path) -> None:
        self.now = START
        settings = load_settings(folder, {"SERVO_LEDGER": "memory:"})
        self.project: Project = open_workspace(settings, create=True, clock=lambda: self.now)
        self.deployments = 0
        self.deployed: tuple[AssetSpec, ...] = ()
        self.dynamic: dict[str, list[str]] = {}
        self.catalog = Catalog(graph=Graph({}))
        self.facts = 0
        # By asset and partition key all that was ever current: (id, content hash, made at, run, code version).
        self.made: dict[tuple[str, str], list[tuple[str, str | None, datetime, str | None, str | None]]] = {}

    def pass_time(self, span: timedelta) -> None:
        self.now += span

    def record(self, *facts: Fact) -> None:
        self.facts += len(facts)
        self.now += timedelta(seconds=1)
        proposals = [Proposal(fact=fact, occurred_at=self.now, actor="tester") for fact in facts]
        self.project.ledger.append(proposals)

    def events(self) -> list[RecordedEvent]:
        return self.project.ledger.read(0, 1_000_000)

    def deploy(self, *specs: AssetSpec) -> None:
        graph = Graph.of(specs)
        self.deployed = specs
        ids = {key: asset_id(key) for key in graph.specs}
        self.deployments += 1
        gone = [asset_id(key) for key in self.catalog.graph.specs if key not in graph.specs]
        self.record(
            DefinitionsDeployed(
                deployment_id=f"dep_{self.deployments}",
                number=self.deployments,
                definitions_hash=f"hash_{self.deployments}",
                previous_deployment_id=f"dep_{self.deployments - 1}" if self.deployments > 1 else None,
                assets=[definition_of(one, ids) for one in graph.specs.values()],
                removed_asset_ids=gone,
            )
        )
        self._define()

    def _define(self) -> None:
        ids = {spec.key: asset_id(spec.key) for spec in self.deployed}
        specs = list(Graph.of(self.deployed).specs.values())
        self.catalog = Catalog.of(specs, ids, deployment_id=f"dep_{self.deployments}", dynamic=self.dynamic)

    def change(self, dimension: str, *, added: Sequence[str] = (), removed: Sequence[str] = ()) -> None:
        """Values of a dynamic dimension come and go."""
        there = [one for one in self.dynamic.get(dimension, []) if one not in removed]
        self.dynamic[dimension] = [*there, *(one for one in added if one not in there)]
        self.record(
            DynamicPartitionsChanged(
                change_id=f"change_{self.facts}", dimension=dimension, added=list(added), removed=list(removed)
            )
        )
        self._define()

    def current(self, asset_key: str, key: str) -> str | None:
        made = self.made.get((asset_key, key))
        return made[-1][0] if made else None

    def inputs_of(self, asset_key: str, keys: list[str]) -> list[InputPartitions]:
        """What a run would read: of what the mapping gives, all that is there."""
        found = []
        spec_of_it = self.catalog.spec(asset_key)
        for upstream in self.catalog.graph.upstream(asset_key):
            mapping, partitions = (
                self.catalog.graph.mapping(upstream, asset_key),
                self.catalog.spec(upstream).partitions,
            )
            read: dict[str, int] = {}
            edges = []
            for key in keys:
                given = mapping.upstream(spec_of_it.partitions.set_of([key]), partitions, self.now)
                there = [str(one) for one in given if self.current(upstream, str(one)) is not None]
                edges.append([read.setdefault(one, len(read)) for one in there])
            ids = [self.current(upstream, one) or "" for one in read]
            found.append(
                InputPartitions(
                    asset_id=asset_id(upstream),
                    asset_key=upstream,
                    keys=list(read),
                    materialization_ids=ids,
                    edges=edges,
                )
            )
        return found

    def run(
        self,
        asset_key: str,
        keys: list[str],
        hashes: list[str | None],
        *,
        staged: bool = False,
        inputs: list[InputPartitions] | None = None,
        late: timedelta = timedelta(),
    ) -> None:
        """Partitions are computed and published, at once or after an approval; time passes after what was read."""
        run_id, code = f"run_{self.facts}", self.catalog.spec(asset_key).code_version
        first = self.project.mint(len(keys))
        read = self.inputs_of(asset_key, keys) if inputs is None else inputs
        outcomes = PartitionOutcomes(keys=keys, first_materialization_id=first, content_hash=hashes)
        of_it: dict[str, Any] = {"asset_id": asset_id(asset_key), "asset_key": asset_key, "run_id": run_id}
        self.pass_time(late)
        finished = TaskFinished(
            **of_it,
            task_key=asset_key,
            attempt=1,
            outcome=Outcome.STAGED if staged else Outcome.SUCCEEDED,
            partitions=msgspec.structs.replace(outcomes, outcome=Outcome.STAGED) if staged else outcomes,
            code_version=code,
            inputs=read,
        )
        self.record(finished)
        if staged:
            self.pass_time(timedelta(minutes=5))
            self.record(
                MaterializationPublished(
                    publication_id=f"pub_{self.facts}",
                    **of_it,
                    task_key=asset_key,
                    partitions=outcomes,
                    code_version=code,
                    inputs=read,
                )
            )
        for key, made, content in zip(keys, outcomes.materialization_ids(), hashes, strict=True):
            assert made is not None
            self.made.setdefault((asset_key, key), []).append((made, content, self.now, run_id, code))

    def mark(self, asset_key: str, keys: list[str], mark: str, *, content: str | None = "by hand") -> None:
        """Without content it is what `servo partition mark` records: a mark that stands for no data."""
        by_hand = mark == "MATERIALIZED"
        partitions = PartitionOutcomes(
            keys=keys,
            first_materialization_id=self.project.mint(len(keys)) if by_hand else None,
            content_hash=content if by_hand else None,
        )
        self.record(
            PartitionsMarked(
                mark_id=f"mark_{self.facts}",
                asset_id=asset_id(asset_key),
                asset_key=asset_key,
                mark=mark,
                partitions=partitions,
            )
        )
        if by_hand:
            for key, made in zip(keys, partitions.materialization_ids(), strict=True):
                assert made is not None
                self.made.setdefault((asset_key, key), []).append((made, content, self.now, None, None))

    def invalidate(self, asset_key: str, keys: list[str]) -> None:
        subset = PartitionSet(asset_id=asset_id(asset_key), asset_key=asset_key, keys=keys)
        self.record(PartitionsInvalidated(invalidation_id=f"inv_{self.facts}", sets=[subset], reason="tried"))

    def roll_back(self, asset_key: str, key: str, place: int) -> None:
        made = self.made[asset_key, key]
        target = made[place]
        self.record(
            RolledBack(
                rollback_id=f"back_{self.facts}",
                asset_id=asset_id(asset_key),
                asset_key=asset_key,
                reason="tried",
                partitions=EarlierMaterializations(
                    keys=[key],
                    materialization_ids=[target[0]],
                    run_ids=[target[3]],
                    materialized_at=[target[2]],
                    code_version=[target[4]],
                    content_hash=[target[1]],
                ),
            )
        )
        made.append(target)

    def compact(self) -> None:
        with self.project.compactor() as compactor:
            compactor.compact()


class World(Hands):
    """One in which anything happens."""

    def __init__(self, folder: Path, random: Random) -> None:
        super().__init__(folder)
        self.random = random
        self.moments = [START]
        self.specs = self._graph()
        self.deploy(*self.specs)
        self.change("customer", added=["acme", "bolt"])

    def live(self, steps: int) -> None:
        """So many things happen; at one point what has happened so far is put into files."""
        acts = [
            self._run, self._run, self._run_all, self._run_again, self._run_again, self._run_again, self._pass_time,
            self._redefine, self._mark, self._invalidate, self._roll_back, self._roll_back, self._come_and_go,
            self._accept_code, self._mark_as_done, self._mark_as_done,
        ]  # fmt: skip
        compacted = self.random.randrange(steps)
        self._run_all()
        for step in range(steps):
            self.random.choice(acts)()
            self.moments.append(self.now)
            if step == compacted:
                self.compact()

    # ── definitions ──────────────────────────────────────────────────────────────────────────────────────────────

    def _partitions(self) -> Partitions:
        return Partitions.of(
            self.random.choice(
                [
                    None,
                    Static("region", ["eu", "us", "ap"][: self.random.randint(1, 3)]),
                    Daily("date", start=self.random.choice(["2025-01-28", "2025-01-30"]), end="2025-02-04"),
                    Daily("date", start="2025-01-28"),
                    Monthly("month", start="2025-01-01", end="2025-04-01"),
                    Daily("date", start="2025-01-29", end="2025-02-02") * Static("region", ["eu", "us"]),
                    Dynamic("customer"),
                ]
            )
        )

    def _mapping(self, upstream: Partitions, downstream: Partitions) -> Mapping | None:
        choices: list[Mapping | None] = [
            None, None, Identity(), All(), Last(), Lookback(2), Offset(-1), self._explicit(upstream, downstream),
        ]  # fmt: skip
        mapping = self.random.choice(choices)
        try:
            (mapping or default_mapping(upstream, downstream)).check(upstream, downstream)
        except InvalidInput:
            return All()
        return mapping

    def _explicit(self, upstream: Partitions, downstream: Partitions) -> Mapping:
        ups, downs = ([str(key) for key in one.begun(START)][:3] for one in (upstream, downstream))
        return Explicit({down: ups[place:] for place, down in enumerate(downs)})

    def _graph(self) -> list[AssetSpec]:
        specs: list[AssetSpec] = []
        for number in range(self.random.randint(2, 5)):
            partitions = self._partitions()
            chosen = self.random.sample(specs, min(len(specs), self.random.choice([0, 1, 1, 2, 2])))
            reads = {one.name: self._mapping(one.partitions, partitions) for one in chosen}
            policy = self.random.choice([None, None, timedelta(hours=self.random.randint(1, 60))])
            specs.append(spec(f"a{number}", partitions, reads, code_version="v1", freshness=policy))
        return specs

    def _redefine(self) -> None:
        place = self.random.randrange(len(self.specs))
        one = self.specs[place]
        match self.random.choice(["code", "code", "code", "policy", "partitions", "partitions", "reads", "mapping"]):
            case "code":
                changed = msgspec.structs.replace(one, code_version=self.random.choice(["v1", "v2", "v3"]))
            case "policy":
                changed = msgspec.structs.replace(one, freshness=self.random.choice([None, timedelta(hours=5)]))
            case "reads":
                changed = msgspec.structs.replace(one, dependencies=one.dependencies[:-1])
            case "mapping":
                changed = msgspec.structs.replace(
                    one,
                    dependencies=tuple(
                        msgspec.structs.replace(read, mapping=self._mapping(upstream.partitions, one.partitions))
                        for read in one.dependencies
                        for upstream in self.specs
                        if upstream.key == read.upstream
                    ),
                )
            case _ if one.partitions.names == ("region",):
                regions = self.random.sample(["eu", "us", "ap"], self.random.randint(1, 3))
                changed = msgspec.structs.replace(one, partitions=Partitions.of(Static("region", regions)))
            case _:
                later = Partitions.of(Daily("date", start="2025-01-30", end="2025-02-10"))
                fits = one.partitions.names == ("date",)
                changed = msgspec.structs.replace(one, partitions=later) if fits else one
        specs = [*self.specs[:place], changed, *self.specs[place + 1 :]]
        try:
            self.deploy(*specs)
        except (InvalidInput, InvalidDefinition):
            return  # an explicit mapping names a partition that would be gone
        self.specs = specs

    def _accept_code(self) -> None:
        one = self._asset()
        fact = CodeDeclaredEqual(
            declaration_id=f"equal_{self.facts}",
            asset_id=asset_id(one.key),
            asset_key=one.key,
            code_version=one.code_version,
            equal_to=[self.random.choice(["v1", "v2", "v3"])],
            reason="tried",
        )
        self.record(fact)

    # ── what happens ─────────────────────────────────────────────────────────────────────────────────────────────

    def _come_and_go(self) -> None:
        value = self.random.choice(["acme", "bolt", "coil"])
        there = value in self.dynamic["customer"]
        self.change("customer", added=[] if there else [value], removed=[value] if there else [])

    def _pass_time(self) -> None:
        self.pass_time(timedelta(hours=self.random.randint(1, 40)))

    def _asset(self) -> AssetSpec:
        return self.random.choice(list(self.catalog.graph.specs.values()))

    def _run(self) -> None:
        one = self._asset()
        keys = [str(key) for key in one.partitions.begun(self.now)]
        if keys:
            self._compute(one.key, self.random.sample(keys, self.random.randint(1, min(len(keys), 5))))

    def _run_all(self) -> None:
        """Most of what there is, upstreams first."""
        for one in list(self.catalog.graph.specs.values()):
            keys = [str(key) for key in one.partitions.begun(self.now)]
            self._compute(one.key, [key for key in keys if self.random.random() < 0.9])

    def _run_again(self) -> None:
        there = [(asset, key) for asset, key in self.made if asset in self.catalog.graph.specs]
        if there:
            asset, key = self.random.choice(there)
            self._compute(asset, [key])

    def _compute(self, asset: str, keys: list[str]) -> None:
        partitions = self.catalog.spec(asset).partitions
        keys = [key for key in keys if key in {str(one) for one in partitions.begun(self.now)}]
        if not keys:
            return
        hashes: list[str | None] = [self.random.choice(["h1", "h1", "h2", "h3", None]) for _ in keys]
        inputs = None if self.random.random() < 0.85 else []
        late = timedelta(hours=self.random.choice([0, 0, 0, 3]))
        self.run(asset, keys, hashes, staged=self.random.random() < 0.15, inputs=inputs, late=late)

    def _known(self) -> tuple[str, str] | None:
        there = [place for place in self.made if place[0] in self.catalog.graph.specs]
        return self.random.choice(there) if there else None

    def _mark(self) -> None:
        one = self._asset()
        keys = [str(key) for key in one.partitions.begun(self.now)][:3]
        if keys:
            self.mark(one.key, keys, self.random.choice(["MATERIALIZED", "FROZEN", "THAWED", "THAWED"]))

    def _mark_as_done(self) -> None:
        """As the command does it: without data, mostly of what has none."""
        one = self._asset()
        keys = [str(key) for key in one.partitions.begun(self.now)]
        absent = [key for key in keys if (one.key, key) not in self.made]
        if keys:
            chosen = absent or keys
            self.mark(one.key, self.random.sample(chosen, min(len(chosen), 2)), "MATERIALIZED", content=None)

    def _invalidate(self) -> None:
        if known := self._known():
            self.invalidate(known[0], [known[1]])

    def _roll_back(self) -> None:
        if known := self._known():
            self.roll_back(*known, place=self.random.randrange(len(self.made[known])))
