"""A project on disk whose history is told by events: deployments are real, what workers would have said is made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from servo.assets.loading import load
from servo.canonical import sha256_hex
from servo.events import Proposal
from servo.events.columns import InputPartitions, Outcome, PartitionOutcomes, PartitionSet
from servo.events.definitions import PlannedTask, Source
from servo.events.fact import Fact
from servo.events.model import (
    PartitionsInvalidated,
    RunFinished,
    RunPlanned,
    RunRequested,
    TaskFinished,
    TaskRetryScheduled,
    TaskStarted,
)
from servo.planning.catalog import Catalog
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.deploying import deploy

MANUAL = Source(kind="manual", id="alice")
START = datetime(2025, 4, 1, tzinfo=UTC)


@dataclass
class Telling:
    """A project and its clock, which goes on by a second whenever it is looked at."""

    path: Path
    now: datetime = START
    made: dict[tuple[str, str], str] = field(default_factory=dict)  # the newest materialization of each partition
    _opened: Project | None = None
    _known: Catalog | None = None

    def clock(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    @property
    def project(self) -> Project:
        if self._opened is None:
            self._opened = open_workspace(load_settings(self.path, {}), create=True, clock=self.clock)
        return self._opened

    def deploy(self, definitions: str) -> Catalog:
        (self.path / "servo.toml").write_text('namespace = "shop"\n')
        (self.path / "definitions.py").write_text(definitions)
        self._known = deploy(self.project, load(load_settings(self.path, {}))).catalog
        return self._known

    @property
    def known(self) -> Catalog:
        assert self._known is not None
        return self._known

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def say(self, *facts: Fact, actor: str = "worker:w1") -> datetime:
        """Record facts, each a second after the one before; the last of these moments."""
        at = self.now
        for fact in facts:
            at = self.clock()  # the ledger looks at it too
            self.project.ledger.append([Proposal(fact=fact, occurred_at=at, actor=actor)])
        return at

    def keys(self, asset: str, text: str) -> list[str]:
        return [str(key) for key in self.set(asset, text)]

    def set(self, asset: str, text: str) -> Any:
        later = self.now + timedelta(days=3650)
        return self.known.spec(f"shop/{asset}").partitions.parse_set(text, later)

    def run(self, name: str, **asked: str) -> str:
        """A run is asked for and planned: of each asset these partitions."""
        run_id = f"run_{name:x>26}"
        sets = {f"shop/{asset}": self.set(asset, text) for asset, text in asked.items()}
        parts = {key: some.to_json() for key, some in sets.items()}
        tasks = [
            PlannedTask(
                task_key=key,
                asset_id=self.known.asset_id(key),
                asset_key=key,
                partition_count=some.count,
                partitions=some.to_json(),
                upstream=[upstream for upstream in self.known.graph.upstream(key) if upstream in sets],
                code_version=self.known.spec(key).code_version,
            )
            for key, some in sets.items()
        ]
        self.say(
            RunRequested(
                run_id=run_id,
                run_key=f"manual:{name}",
                request_fingerprint=sha256_hex([name]),
                asset_selection=sorted(sets),
                partitions=parts,
                source=MANUAL,
            ),
            actor="person:alice",
        )
        self.say(RunPlanned(run_id=run_id, tasks=tasks, deployment_id=self.known.deployment_id))
        return run_id

    def started(self, run_id: str, asset: str, attempt: int = 1) -> None:
        key = f"shop/{asset}"
        self.say(
            TaskStarted(
                run_id=run_id,
                task_key=key,
                attempt=attempt,
                asset_id=self.known.asset_id(key),
                asset_key=key,
                partition_count=1,
                worker="w1",
            )
        )

    def retry(self, run_id: str, asset: str, until: datetime, reason: str) -> None:
        self.say(TaskRetryScheduled(run_id=run_id, task_key=f"shop/{asset}", attempt=1, retry_at=until, reason=reason))

    def finished(
        self,
        run_id: str,
        asset: str,
        keys: Sequence[str],
        outcome: Outcome | list[Outcome] = Outcome.SUCCEEDED,
        *,
        content: str | None = None,
        errors: list[str | None] | None = None,
        task: Outcome | None = None,
        **more: Any,
    ) -> datetime:
        """What became of partitions; whatever succeeded has read what its mapping gives and what is there."""
        key = f"shop/{asset}"
        outcomes = outcome if isinstance(outcome, list) else [outcome] * len(keys)
        first = self.project.mint(max(len(keys), 1))
        hashes = [sha256_hex([content or run_id, one])[:32] for one in keys]
        worst = next((one for one in (Outcome.FAILED, Outcome.STAGED) if one in outcomes), Outcome.SUCCEEDED)
        partitions = PartitionOutcomes(
            keys=list(keys), outcome=outcomes, first_materialization_id=first, content_hash=hashes, rows=3, error=errors
        )
        fact = TaskFinished(
            run_id=run_id,
            task_key=key,
            attempt=more.pop("attempt", 1),
            asset_id=self.known.asset_id(key),
            asset_key=key,
            outcome=task or worst,
            partitions=partitions,
            code_version=self.known.spec(key).code_version,
            inputs=[self._read(key, upstream, keys) for upstream in self.known.graph.upstream(key)],
            **more,
        )
        at = self.say(fact)
        for one, how, name in zip(keys, outcomes, partitions.materialization_ids(), strict=True):
            if how is Outcome.SUCCEEDED and name is not None:
                self.made[key, one] = name
        return at

    def _read(self, key: str, upstream: str, keys: Sequence[str]) -> InputPartitions:
        spec, mapping = self.known.spec(key), self.known.graph.mapping(upstream, key)
        definition = self.known.spec(upstream).partitions
        places: dict[str, int] = {}
        edges = []
        for one in keys:
            given = mapping.upstream(spec.partitions.set_of([one]), definition, self.now)
            there = [text for text in map(str, given) if (upstream, text) in self.made]
            edges.append([places.setdefault(text, len(places)) for text in there])
        return InputPartitions(
            asset_id=self.known.asset_id(upstream),
            asset_key=upstream,
            keys=list(places),
            materialization_ids=[self.made[upstream, text] for text in places],
            edges=edges,
        )

    def ended(self, run_id: str, outcome: Outcome = Outcome.SUCCEEDED) -> None:
        self.say(RunFinished(run_id=run_id, outcome=outcome, source=MANUAL))

    def skipped(self, run_id: str, asset: str, keys: Sequence[str], why: str) -> None:
        key = f"shop/{asset}"
        self.say(
            TaskFinished(
                run_id=run_id,
                task_key=key,
                attempt=0,
                asset_id=self.known.asset_id(key),
                asset_key=key,
                outcome=Outcome.SKIPPED,
                partitions=PartitionOutcomes(keys=list(keys), outcome=Outcome.SKIPPED),
                error=why,
            )
        )

    def materialized(self, name: str, **asked: str) -> datetime:
        """A run that succeeds as a whole, upstreams first as they are named."""
        run_id = self.run(name, **asked)
        at = self.now
        for asset, text in asked.items():
            at = self.finished(run_id, asset, self.keys(asset, text))
        self.ended(run_id)
        return at

    def invalidated(self, asset: str, keys: Sequence[str], reason: str) -> datetime:
        key = f"shop/{asset}"
        fact = PartitionsInvalidated(
            invalidation_id=self.project.mint(),
            sets=[PartitionSet(asset_id=self.known.asset_id(key), asset_key=key, keys=list(keys))],
            reason=reason,
        )
        return self.say(fact, actor="person:bob")
