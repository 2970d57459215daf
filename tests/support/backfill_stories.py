"""Backfills told to a board: trees of jobs as facts, and a ledger in which their chunks run and end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from servo.controllers.backfill_board import Backfill, Backfills
from servo.controllers.backfilling import cancelled, decide, paused, resumed
from servo.events import Proposal, RecordedEvent
from servo.events.automation import BackfillChunkPlanned, BackfillCreated, BackfillStateChanged
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import Source, Upstream
from servo.events.fact import Fact
from servo.events.model import RunFinished, RunStarted, TaskFinished
from servo.ledger import Condition, MemoryLedger
from servo.operations.backfills.facts import created_facts, retry_fact
from servo.operations.backfills.plan import BackfillJob, BackfillPlan
from servo.operations.backfills.requests import BackfillFields
from servo.partitions import Daily
from servo.planning.backfills import Job, chunk_count, described
from servo.planning.catalog import Catalog
from tests.support.catalogs import catalog, spec
from tests.support.recording import WORKSPACE, at, mint

COUNTED = [
    "position",
    "state",
    "state_version",
    "state_at",
    "reason",
    "next_chunk",
    "resumed",
    "active",
    "succeeded",
    "failed",
    "cancelled",
]


def run_id_of(run_key: str) -> str:
    return f"run:{run_key}"


def tree_facts(
    known: Catalog,
    jobs: Sequence[Job],
    targets: Iterable[str],
    identify: Callable[[str], str],
    *,
    chunk_size: int,
    **more: Any,
) -> list[BackfillCreated]:
    """The facts of one request, as the runtime writes them: the root first, then the others."""
    chosen = set(targets)
    asked = BackfillFields(
        assets=tuple(key for key in known.graph.specs if key in chosen), chunk_size=chunk_size, **more
    )
    planned = tuple(
        BackfillJob(
            asset_key=job.asset_key,
            role=job.role,
            level=job.level,
            distance=job.distance,
            waits_for=tuple(job.waits_for),
            partitions=job.partitions,
            chunk_size=chunk_size,
            chunks=chunk_count(job.partitions.count, chunk_size),
            first_chunk=job.partitions,
            warnings=tuple(job.warnings),
        )
        for job in jobs
    )
    plan = BackfillPlan(
        jobs=planned,
        targets=asked.assets,
        partitions=sum(job.partitions.count for job in planned),
        chunks=sum(job.chunks for job in planned),
    )
    ids = {key: identify(key) for key in [*(job.asset_key for job in jobs), "several"]}
    minted = iter(ids.values())
    alone = asked.assets[0] if len(asked.assets) == 1 else "several"
    return created_facts(known, asked, plan, ids[alone], lambda: next(minted))


def numbers(job: Backfill) -> dict[str, Any]:
    """All that a board keeps of a backfill."""
    return {"fact": job.fact} | {name: getattr(job, name) for name in COUNTED}


class BackfillStory:
    """A ledger, the board of its backfills, and short ways to make things happen."""

    def __init__(self, known: Catalog, *, keep_ended: bool = True) -> None:
        self.known = known
        self.ledger = MemoryLedger(WORKSPACE, mint())
        self.board = Backfills(keep_ended=keep_ended)
        self.minute = 0.0

    @property
    def now(self) -> datetime:
        return at(self.minute)

    def happens(self, *facts: Fact, actor: str = "tester", condition: Condition | None = None) -> Backfills:
        """Record facts, one minute later, and let the board see them."""
        self.minute += 1
        proposals = [Proposal(fact=fact, occurred_at=self.now, actor=actor) for fact in facts]
        self.ledger.append(proposals, condition)
        return self.board.take(self.ledger.read(self.board.position))

    def history(self) -> list[RecordedEvent]:
        return self.ledger.read(0, 1_000_000)

    def job(self, name: str) -> Backfill:
        return self.board.jobs[name]

    def shown(self, name: str) -> str:
        return str(self.board.shown(self.job(name)))

    # ── backfills ────────────────────────────────────────────────────────────────────────────────────────────────

    def created(self, name: str, asset: str, partitions: str, *, after: Iterable[str] = (), **more: Any) -> Backfill:
        """One backfill of an asset of the shop; `after` names those that it waits for."""
        definition = self.known.spec(f"shop/{asset}").partitions
        some = definition.parse_set(partitions, self.now)
        upstreams = [
            Upstream(backfill_id=other, asset_key=self.board.jobs[other].fact.asset_selection[0]) for other in after
        ]
        fact = BackfillCreated(
            backfill_id=name,
            name=name,
            asset_selection=[f"shop/{asset}"],
            asset_id=self.known.asset_id(f"shop/{asset}"),
            selector=described(some),
            definition=definition.to_json(),
            total_partitions=some.count,
            client_request_id=name,
            upstreams=upstreams,
            state=("WAITING_UPSTREAM" if upstreams else "PENDING"),
            **more,
        )
        self.happens(fact, actor="alice")
        return self.board.jobs[name]

    def retried(self, name: str, of: str, failed: str) -> Backfill:
        job = self.job(of)
        some = job.partitions.partitions.parse_set(failed, self.now)
        asset = job.fact.asset_selection[0]
        waits, stopped = not self.board.may_start(job), self.board.is_paused(job.root)
        named = {"backfill_id": name, "name": name, "request_id": name, "fingerprint": name}
        self.happens(retry_fact(job, asset, some, waits=waits, paused=stopped, **named), actor="alice")
        return self.job(name)

    def decides(self, known: Catalog | None = None) -> list[Fact]:
        """What there is to decide, recorded."""
        decisions = list(decide(self.board, known or self.known, self.now, run_id_of))
        for decision in decisions:
            condition = Condition(position=decision.position, subjects=decision.subjects)
            self.ledger.append(decision.proposals, condition)
        self.board.take(self.ledger.read(self.board.position))
        return [fact for decision in decisions for fact in decision.facts]

    def pauses(self, *names: str) -> None:
        self.happens(*paused([self.job(name) for name in names]), actor="alice")

    def resumes(self, *names: str) -> None:
        self.happens(*resumed(self.board, [self.job(name) for name in names]), actor="alice")

    def cancels(self, *names: str, reason: str | None = None) -> list[Fact]:
        facts = cancelled([self.job(name) for name in names], reason)
        self.happens(*facts, actor="alice")
        return facts

    # ── their runs ───────────────────────────────────────────────────────────────────────────────────────────────

    def starts(self, name: str, chunk: int) -> None:
        self.happens(RunStarted(run_id=self._run(name, chunk), source=_source(name, chunk)), actor="worker:w1")

    def ends(self, name: str, chunk: int, *, lost: int = 0, outcome: Outcome | None = None) -> None:
        """The run of a chunk ends: of its partitions, so many were not made."""
        run_id, job = self._run(name, chunk), self.job(name)
        outcome = outcome or (Outcome.FAILED if lost else Outcome.SUCCEEDED)
        finished = RunFinished(run_id=run_id, outcome=outcome, source=_source(name, chunk))
        self.happens(self.says(name, chunk, job.active[run_id].count - lost, outcome), finished, actor="worker:w1")

    def says(self, name: str, chunk: int, made: int, outcome: Outcome, **more: Any) -> TaskFinished:
        """What a worker says of the task of a chunk's run."""
        asset = self.job(name).fact.asset_selection[0]
        return TaskFinished(
            run_id=self._run(name, chunk),
            task_key=asset,
            attempt=more.pop("attempt", 1),
            asset_id=self.job(name).fact.asset_id or "",
            asset_key=asset,
            outcome=outcome,
            partitions=PartitionOutcomes(keys=[], outcome=outcome),
            succeeded_so_far=made,
            **more,
        )

    def goes_well(self, *names: str) -> None:
        """Everything of these backfills is planned, runs and ends well."""
        while any(not self.job(name).over for name in names):
            self.decides()
            for name in names:
                for chunk in list(self.job(name).active.values()):
                    self.ends(name, chunk.index)

    def _run(self, name: str, chunk: int) -> str:
        return run_id_of(f"backfill:{name}:chunk:{chunk}")


def _source(name: str, chunk: int) -> Source:
    return Source(kind="backfill", id=name, detail=str(chunk))


def chunks_of(facts: Iterable[Fact]) -> list[tuple[str, int]]:
    return [(fact.backfill_id, fact.chunk_index) for fact in facts if isinstance(fact, BackfillChunkPlanned)]


def states_of(facts: Iterable[Fact]) -> list[tuple[str, str]]:
    return [(fact.backfill_id, fact.state) for fact in facts if isinstance(fact, BackfillStateChanged)]


DAYS = Daily("date", start="2024-01-01")
SHOP = catalog(
    spec("raw", DAYS),
    spec("clean", DAYS, ["raw"]),
    spec("orders", DAYS, ["clean"]),
    spec("other", DAYS),
)
JANUARY = "2024-01"


def story() -> BackfillStory:
    """A shop in which nothing has happened yet."""
    return BackfillStory(SHOP)


def chain(told: BackfillStory, size: int = 10) -> None:
    """orders waits for clean, clean for raw."""
    told.created("raw", "raw", JANUARY, root_backfill_id="orders", chunk_size=size)
    told.created("clean", "clean", JANUARY, root_backfill_id="orders", chunk_size=size, after=["raw"])
    told.created("orders", "orders", JANUARY, chunk_size=size, after=["clean"])
