"""What people do with runs: plan, ask for, follow, cancel, try again. The command line and the API both call this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from servo import decoders
from servo.answers.run_views import PartitionFailure, RunListed, RunView
from servo.answers.runs import CancelRequested, Requested, RunProgress
from servo.assets.selection import Selection, selection_of
from servo.controllers.board import Board
from servo.controllers.requests import request, retry_selection
from servo.controllers.states import RunState
from servo.errors import AppendConflict, Conflict, IdempotencyMismatch, InvalidInput, RunNotFound
from servo.events import Proposal, RecordedEvent, decode
from servo.events.columns import Outcome, spread
from servo.events.definitions import Source
from servo.events.lifecycles import CheckpointStatus, RunStatus
from servo.events.model import (
    CheckpointRequested,
    RunCancelRequested,
    RunFinished,
    RunRequested,
    TaskFinished,
)
from servo.ids import run_id as id_of_run
from servo.ledger.protocol import Condition, Receipt
from servo.partitions import PartitionSet
from servo.planning import Plan, require_inputs
from servo.planning.catalog import Catalog
from servo.runtime.call_remarks import rows_left_out, samples_taken
from servo.runtime.cataloguing import deployed_catalog, local_catalog, recorded_catalog
from servo.runtime.documents import held_back_of
from servo.runtime.labels import Labels
from servo.runtime.marks import thaw
from servo.runtime.planned import plan_for
from servo.runtime.progress import progress_of
from servo.runtime.requesting import append_answered
from servo.runtime.run_tracing import append_request
from servo.runtime.states import state_of, statuses_in
from servo.runtime.tracing import span, traceparent
from servo.runtime.wiring import Project
from servo.status.exclusions import frozen_among, let_readers_wait, require_none_named

if TYPE_CHECKING:
    from servo.answers.runs import Record

_FIND = (
    "SELECT run_id, requested_version FROM runs WHERE starts_with(run_id, $run_id) ORDER BY requested_at DESC LIMIT 2"
)
_LIST = """
    SELECT run_id, status, asset_selection, source_kind, requested_by, requested_at, started_at, finished_at,
           (SELECT coalesce(sum(partition_count), 0) FROM tasks WHERE tasks.run_id = runs.run_id) AS partitions,
           reason
    FROM runs
    WHERE requested_version IS NOT NULL AND ($status IS NULL OR status = $status)
      AND ($asset IS NULL OR list_contains(asset_selection, $asset) OR run_id IN (
          SELECT run_id FROM tasks WHERE asset_id = $asset_id))
      AND requested_at >= coalesce($since, requested_at) AND ($until IS NULL OR requested_at < $until)
      AND ($at IS NULL OR requested_at < $at OR (requested_at = $at AND run_id > $run_id))
    ORDER BY requested_at DESC, run_id LIMIT $limit
"""
_TASKS = "SELECT * FROM tasks WHERE run_id = $run_id ORDER BY task_key"
_FAILED_CHECKS = """
    SELECT asset_key, partition_key, check_name, blocking, observed, task_key, attempt FROM check_results
    WHERE run_id = $run_id AND NOT passed ORDER BY asset_key, partition_key, check_name LIMIT 1000
"""
_CHECKPOINTS = f"""
    SELECT checkpoint_id, coalesce(decision, '{CheckpointStatus.REQUESTED}') AS status, asset_key, task_key,
           len(partition_keys) AS partitions, approvers, escalated_to, deadline, requested_at,
           decided_by, decided_at, decision_reason
    FROM checkpoints WHERE run_id = $run_id ORDER BY requested_version
"""
_OUTCOMES = """
    SELECT asset_key, last_attempt_outcome AS outcome, count(*) AS partitions FROM partition_status
    WHERE last_attempt_run_id = $run_id GROUP BY ALL ORDER BY ALL
"""


class _FirstUse(NamedTuple):
    """What was asked for under a run key, by which event, and when."""

    fingerprint: str
    event_id: str
    position: int
    at: datetime


class Runs:
    """The runs of one workspace."""

    def __init__(self, project: Project) -> None:
        self._project = project

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, selection: Sequence[str], *, partitions: str | None = None) -> Plan:
        """What would run, as it would run; nothing is written."""
        known = local_catalog(self._project)
        plan = plan_for(self._project, known, self._named(known, selection, partitions))
        return msgspec.structs.replace(plan, history=tuple(change.sentence() for change in known.changes()))

    def request(
        self,
        selection: Sequence[str],
        *,
        partitions: str | None = None,
        priority: int = 0,
        tags: Mapping[str, str] | None = None,
        request_id: str | None = None,
        accept_schema: bool = False,
        unfreeze: str | None = None,
        actor: str,
        before: Callable[[], None] = lambda: None,
    ) -> Requested:
        """Ask for a run. Definitions that have changed take effect first.

        Frozen partitions are left out of ranges, and refused by name; `unfreeze` is the reason to thaw them instead.

        A plan that cannot run is refused, and nothing is recorded. So it is where `before` raises, which is called when
        the plan is known to be sound.
        """
        if self._project.unbegun:  # to deploy would begin it
            with self._project.looking() as looking:
                require_inputs(Runs(looking).plan(selection, partitions=partitions))
                before()
                before = lambda: None  # noqa: E731 (it was called)
        return self.request_chosen(
            lambda known: self._named(known, selection, partitions, thawing=unfreeze is not None),
            priority=priority,
            tags=tags,
            request_id=request_id,
            accept_schema=accept_schema,
            unfreeze=unfreeze,
            actor=actor,
            before=before,
        )

    def request_chosen(
        self,
        choose: Callable[[Catalog], Selection],
        *,
        priority: int = 0,
        tags: Mapping[str, str] | None = None,
        request_id: str | None = None,
        accept_schema: bool = False,
        unfreeze: str | None = None,
        actor: str,
        before: Callable[[], None] = lambda: None,
    ) -> Requested:
        """The same for partitions that a program chooses, given the definitions that will be in force."""
        selection = Selection(wanted={})
        frozen: dict[str, PartitionSet] = {}
        if unfreeze is not None and not unfreeze.strip():
            raise InvalidInput("no reason is given to unfreeze", hint="say why: whoever looks at it later will ask")

        def sound(known: Catalog) -> None:
            nonlocal selection, frozen
            selection = choose(known)
            if unfreeze is not None:
                frozen = frozen_among(state_of(self._project, catalog=known), selection.wanted)
            require_inputs(plan_for(self._project, known, selection, thawed=bool(frozen)))
            before()

        known = deployed_catalog(self._project, actor=actor, sound=sound)
        if frozen and unfreeze is not None:
            thaw(self._project, known, frozen, reason=unfreeze, actor=actor)
        return self._ask(
            known,
            selection,
            request_id=request_id,
            actor=actor,
            priority=priority,
            tags=tags,
            accept_schema=accept_schema,
        )

    def retry(
        self,
        run_id: str,
        *,
        partitions: str | None = None,
        everything: bool = False,
        request_id: str | None = None,
        actor: str,
        before: Callable[[], None] = lambda: None,
    ) -> Requested:
        """Ask for a new run of what failed, was skipped or was cancelled in another; or of all of it, or of a part."""
        run = self._state(run_id)
        if not run.ended:
            raise Conflict(f"{run.run_id} has not ended yet", hint=f"cancel it first: servo run cancel {run.run_id}")
        known = deployed_catalog(self._project, actor=actor)
        subset = None if partitions is None else self._subset(run, known, partitions)
        selection = retry_selection(run, known, everything=everything, subset=subset)
        require_inputs(plan_for(self._project, known, selection))
        before()
        return self._ask(
            known,
            selection,
            request_id=request_id,
            actor=actor,
            priority=run.priority,
            tags=run.tags,
            queue=run.queue,
            retry_of=run.run_id,
            accept_schema=run.accept_schema,
        )

    def _subset(self, run: RunState, known: Catalog, partitions: str) -> dict[str, PartitionSet]:
        """These partitions, of every asset of the run that can have them: days say nothing about its months."""
        found, refused = {}, []
        for key in run.asset_selection:
            try:
                found[key] = known.spec(key).partitions.parse_set(partitions, self._project.clock())
            except InvalidInput as problem:
                refused.append(problem)
        if not found and refused:
            raise refused[0]
        return found

    def _ask(
        self,
        known: Catalog,
        selection: Selection,
        *,
        request_id: str | None,
        actor: str,
        priority: int,
        tags: Mapping[str, str] | None,
        accept_schema: bool,
        queue: str | None = None,
        retry_of: str | None = None,
    ) -> Requested:
        project = self._project
        with span("run", assets=len(selection.wanted)) as current:  # what its tasks are children of
            detail = request_id or project.mint()
            run_key = f"manual:{detail}"
            run_id = id_of_run(project.workspace.tenant, project.workspace.name, run_key, project.secret.value)
            current.set("servo.run_id", run_id)
            fact = request(
                known,
                selection.wanted,
                added=selection.added,
                only_stale=selection.only_stale,
                run_key=run_key,
                run_id=run_id,
                source=Source(kind="manual", id=actor, detail=detail),
                priority=priority,
                tags=tags,
                queue=queue,
                retry_of=retry_of,
                accept_schema=accept_schema,
                traceparent=traceparent(),
            )
            return self._record(fact, selection, given=request_id, actor=actor)

    def _record(self, fact: RunRequested, selection: Selection, *, given: str | None, actor: str) -> Requested:
        """Record a request, or find the first one of its run key; `given` is the id that somebody chose for it."""
        project, run_id = self._project, fact.run_id
        now = project.clock()
        proposal = Proposal(fact=fact, occurred_at=now, actor=actor)
        assets = {key: some.count for key, some in sorted(selection.wanted.items()) if some}
        answer = Requested(run_id=run_id, run_key=fact.run_key, event_id="", assets=assets)
        new = None if given is None else self._append_new(proposal, answer)
        before = None if given is None or new is not None else self._first_use(fact.run_key)
        if before is not None and before.fingerprint != fact.request_fingerprint:
            raise IdempotencyMismatch(
                f"the request id {given!r} was used for another request, {run_id}",
                idempotency_key=str(given),
                hint="give this one another id",
            )
        if new is not None:
            receipt, accepted_at = new, now
        elif before is not None and before.position <= project.ledger.head().trimmed_position:
            # Archived: the ledger may have forgotten its key, and would take it for a new one.
            receipt = Receipt(event_id=before.event_id, position=before.position, duplicate=True)
            accepted_at = before.at
        else:
            receipt = append_request(
                project, proposal, answer=answer, known=None if before is None else before.position
            )
            accepted_at = now
        return msgspec.structs.replace(
            answer,
            event_id=receipt.event_id,
            position=receipt.position,
            accepted_at=accepted_at,
            duplicate=receipt.duplicate,
        )

    def _append_new(self, proposal: Proposal, answer: Requested) -> Receipt | None:
        """Record a request whose run key nobody has used: None if somebody has, or it may be so.

        A run's id follows from its key, so the ledger tells it by one look at its index, and no state need be folded.
        """
        trimmed, archive = self._project.ledger.head().trimmed_position, self._project.archive
        # Nobody can look into the archive while appending, but what is there stays as it is.
        if trimmed and (
            archive.last_position < trimmed or archive.may_speak_of(answer.run_id, RunRequested.event_type)
        ):
            return None
        condition = Condition(position=trimmed, subjects=frozenset({answer.run_id}))
        try:
            (receipt,) = append_answered(self._project, [proposal], condition, answer=answer)
        except (AppendConflict, IdempotencyMismatch):
            return None
        return receipt

    def cancel(self, run_id: str, *, reason: str | None = None, actor: str) -> CancelRequested:
        """Ask for a run to stop."""
        run = self._state(run_id)
        if run.ended:
            raise Conflict(f"{run.run_id} has already ended: {run.status}", hint="there is nothing left to cancel")
        # A run that ends at this very moment has ended, and the request changes nothing. Asked again, it is the same.
        fact = RunCancelRequested(run_id=run.run_id, reason=run.cancel_reason if run.cancel_requested else reason)
        proposal = Proposal(fact=fact, occurred_at=self._project.clock(), actor=actor)
        answer = CancelRequested(run_id=run.run_id, event_id=None, status=RunStatus.CANCELLING)
        (receipt,) = append_answered(self._project, [proposal], answer=answer)
        return msgspec.structs.replace(answer, event_id=receipt.event_id, duplicate=receipt.duplicate)

    def _named(
        self, known: Catalog, selection: Sequence[str], partitions: str | None, *, thawing: bool = False
    ) -> Selection:
        """What a selection means; one that names a frozen partition is refused, unless it is about to be thawed."""
        found = self._wanted(known, selection, partitions)
        if not thawing:
            state = state_of(self._project, catalog=known)
            require_none_named(known.graph, selection, partitions, frozen_among(state, found.wanted), state.now)
        return found

    def _wanted(self, known: Catalog, selection: Sequence[str], partitions: str | None) -> Selection:
        text = " or ".join(f"({one})" for one in selection) if len(selection) > 1 else "".join(selection)
        now = self._project.clock()
        statuses = statuses_in(self._project, known)
        found = selection_of(known.graph, text, now=now, partitions=partitions, statuses=statuses)
        return let_readers_wait(state_of(self._project, catalog=known, now=now), found) if found.by_status else found

    def _first_use(self, run_key: str) -> _FirstUse | None:
        sql = "SELECT request_fingerprint, event_id, created_at FROM run_key_index WHERE run_key = $run_key"
        rows = self._project.reader.query(sql, {"run_key": run_key}, fresh=True).rows
        if not rows:
            return None
        fingerprint, event_id, at = rows[0]
        return _FirstUse(fingerprint, event_id, self._project.history.find(event_id), at)

    @cached_property
    def label(self) -> Labels:
        """What people type for a partition of an asset."""
        return Labels(self._project)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def progress(self, run_id: str) -> RunProgress:
        """How far it is."""
        return progress_of(self._state(run_id))

    def follow(
        self,
        run: Requested | str,
        on_change: Callable[[RunProgress], None],
        *,
        timeout: float | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> RunProgress:
        """Tell of every change until the run has ended, waits for nothing but a person, or the time is up.

        `tick` is called about once a second.
        """
        if isinstance(run, Requested) and run.position is not None:
            name, after = run.run_id, run.position - 1
        else:
            name, after = self._find(run.run_id if isinstance(run, Requested) else run)
        board = Board(position=after, keep_ended=True)
        begun = self._project.clock()
        while True:
            changed = self._news(board, name)
            now = progress_of(board.runs[name])
            if changed:
                on_change(now)
            late = timeout is not None and (self._project.clock() - begun).total_seconds() > timeout
            if now.ended or now.parked or late:
                return now
            tick()
            self._project.follower.wait(board.position, 1.0 if timeout is None else min(1.0, timeout))

    def _news(self, board: Board, run_id: str) -> bool:
        """Take in what is new; whether any of it is about the run."""
        changed = False
        for events in self._project.follower.new_events(board.position):
            board.take(events)
            changed |= any(event.correlation_id == run_id for event in events)
        return changed

    def list(
        self,
        *,
        status: str | None = None,
        asset: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int = 50,
    ) -> list[RunListed]:
        """Runs, the newest first. `after`: when the last one that was seen was asked for, and its id."""
        known = None if asset is None else recorded_catalog(self._project)
        key = None if known is None or asset is None else known.graph.resolve(asset)
        at, run_id = after or (None, None)
        parameters = {
            "status": status,
            "asset": key,
            "asset_id": None if known is None or key is None else known.asset_id(key),
            "since": since,
            "until": until,
            "at": at,
            "run_id": run_id,
            "limit": limit,
        }
        rows = self._project.reader.query(_LIST, parameters, fresh=True, timeout=30.0).dicts()
        return decoders.convert(rows, list[RunListed])

    def show(self, run_id: str) -> RunView:
        """Everything about a run: its row, its tasks, the checks that failed, and its partitions by outcome."""
        name, _ = self._find(run_id)
        ask = self._project.reader.snapshot(fresh=True, timeout=30.0).query
        parameters = {"run_id": name}
        (row,) = ask("SELECT * FROM runs WHERE run_id = $run_id", parameters).dicts()
        events = list(self._events(name))
        skipped = {task.task_key: task.skipped for task in progress_of(_run(events)).tasks}
        shown = {
            **row,
            "tasks": [
                task | {"partitions_skipped": skipped.get(task["task_key"], 0)}
                for task in ask(_TASKS, parameters).dicts()
            ],
            "checks": ask(_FAILED_CHECKS, parameters).dicts(),
            "partitions": ask(_OUTCOMES, parameters).dicts(),
            "checkpoints": ask(_CHECKPOINTS, parameters).dicts(),
            "failures": _failures(events),
            "held_back": held_back_of(row["held_back"]),
            "rows_left_out": rows_left_out(events),
            "samples": samples_taken(events),
        }
        return decoders.convert(shown, RunView)

    def logs(self, run_id: str, *, task: str | None = None, follow: bool = False) -> Iterator[Record]:
        """What its tasks wrote, in the order of time; with `follow`, also what they still write."""
        from servo.runtime.task_log import read_logs  # noqa: PLC0415 (who asks for no logs need not load them)

        name, _ = self._find(run_id)
        return read_logs(self._project.settings, name, task, follow=follow, ended=lambda: self.progress(name).ended)

    # ── finding ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _find(self, run_id: str) -> tuple[str, int]:
        """The full id of a run, given that or how it begins, and the position before its request."""
        rows = self._project.reader.query(_FIND, {"run_id": run_id}, fresh=True, timeout=30.0).rows
        exact = [row for row in rows if row[0] == run_id]
        if not rows or not run_id:
            raise RunNotFound(f"there is no run {run_id!r:.80}", hint="see `servo run list`")
        if len(rows) > 1 and not exact:
            raise RunNotFound(f"several runs begin with {run_id!r:.80}", hint="give more of the id")
        name, requested = (exact or rows)[0]
        return name, self._project.history.find(requested) - 1

    def _events(self, run_id: str) -> Iterator[RecordedEvent]:
        """The events of a run, from its request to its end or to now."""
        name, after = self._find(run_id)
        stories = {name}  # its own, and those of its checkpoints
        for event in self._project.history.events(after):
            if event.event_type == CheckpointRequested.event_type:
                asked = decode(event)
                if isinstance(asked, CheckpointRequested) and asked.run_id == name:
                    stories.add(asked.checkpoint_id)
            if event.correlation_id in stories:
                yield event
                if event.event_type == RunFinished.event_type:
                    return

    def _state(self, run_id: str) -> RunState:
        """A run with its tasks, from its own events."""
        return _run(self._events(run_id))


def _run(events: Iterable[RecordedEvent]) -> RunState:
    """A run and its tasks, as its events tell it."""
    (run,) = Board(keep_ended=True).take(events).runs.values()
    return run


def _failures(events: Iterable[RecordedEvent]) -> list[PartitionFailure]:
    """The partitions whose newest outcome in the run is a failure, with what each failed of."""
    found: dict[tuple[str, str], PartitionFailure] = {}
    for event in events:
        fact = decode(event)
        if not isinstance(fact, TaskFinished):
            continue
        columns = zip(
            fact.partitions.keys,
            fact.partitions.outcomes(),
            spread(fact.partitions.error, len(fact.partitions)),
            strict=True,
        )
        for key, outcome, error in columns:
            found.pop((fact.asset_key, key), None)
            if outcome is Outcome.FAILED:
                found[fact.asset_key, key] = PartitionFailure(
                    asset_key=fact.asset_key, partition_key=key, error=error or fact.error
                )
    return list(found.values())
