"""The control loop: plans runs, ends them and retries lost tasks. It knows no Spark, and runs in no JVM's process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from threading import Event

import msgspec

from servo.assets.selection import Selection
from servo.controllers import backfilling
from servo.controllers.backfill_board import Backfill, Backfills, BackfillState
from servo.controllers.decisions import Decision, planned_without, retry_lost_tasks
from servo.controllers.dispatch import DISPATCH, Limits, decide, next_wake, unplanned
from servo.controllers.requests import gone, requested_additions, require_some
from servo.controllers.states import RunState
from servo.errors import PASSING, ProjectionDamaged, ProjectionError, ProjectionMissing, ServoError
from servo.events.automation import BackfillStateChanged
from servo.events.columns import Outcome
from servo.events.fact import Fact
from servo.events.model import RunFinished, RunPlanned
from servo.planning import plan_fact, require_inputs
from servo.runtime.loop.service_loop import RunTracker, ServiceLoop
from servo.runtime.maintenance import Maintenance
from servo.runtime.processes.children import CompactionProcess
from servo.runtime.states import state_of
from servo.runtime.wiring import Project
from servo.status.plans import plan_for, plan_of_what_can_be_made
from servo.tracing import past_span, span

log = logging.getLogger(__name__)

_LONGEST_PAUSE_SECONDS = 1.0


class Control(ServiceLoop):
    """Plans runs and chunks of backfills, ends what is over, and gives the tasks of lost workers to others."""

    kind = "control"
    trouble = "Runs cannot be planned or ended"
    rest = 4.0
    _tracker: RunTracker

    def __init__(self, project: Project, *, compact_aside: CompactionProcess | None = None) -> None:
        super().__init__(project, RunTracker(project, backfills=True))
        self._compact_aside = compact_aside
        self._limits = Limits.of(project.settings.limits)
        self._service = Maintenance(project)
        self._checked = -1  # the position as of which it was looked whether backfills still have to wait

    def run(self, stop: Event) -> None:
        """Go on until told to stop."""
        try:
            super().run(stop)
            with suppress(ServoError):
                self._service.bound_the_tail(at_rest=True, rest=0.0)
        finally:
            if self._compact_aside is not None:
                self._compact_aside.close()

    def _pass(self) -> bool:
        self.step()
        return True

    def _is_mending(self, problem: ServoError) -> bool:
        """Have projections that cannot be opened rebuilt from the ledger; False where that is not what is wrong.

        Not those that belong to another ledger: they may be the last to know what this one has lost.
        """
        if not isinstance(problem, ProjectionError) or self._compact_aside is None:
            return False
        try:
            self._project.store.current()
        except (ProjectionDamaged, ProjectionMissing) as damage:
            if self._compact_aside.replay():
                told = "%s; the projections are rebuilt from the ledger now, which is not affected"
                log.warning(told, damage.message, extra={"action": "projections.rebuild"})
            return True
        return False

    def step(self) -> None:
        """One pass: everything that can be decided now."""
        tracker = self._tracker
        tracker.refresh()
        self._backfill()
        for run in unplanned(tracker.board, self._limits):
            self._append(self._planned(run))
        tracker.refresh()
        now = self._project.clock()
        for decision in decide(tracker.board, tracker.catalog, now):
            self._append(decision)
        if any(run.running for run in tracker.board.runs.values()):
            live = {holder.id for holder in self._project.leases.live() if holder.kind == "worker"}
            for decision in retry_lost_tasks(tracker.board, live, now, tracker.catalog):
                self._append(decision)
        self._service.bound_the_tail(at_rest=not tracker.board.runs, aside=self._compact_aside)

    def _backfill(self) -> None:
        """Ask for the runs of chunks whose turn has come, and end backfills that are over."""
        backfills = self._tracker.backfills
        assert backfills is not None
        if not backfills.jobs:
            return
        now, catalog = self._project.clock(), self._tracker.catalog
        with self._checking(backfills) as waiting:
            for decision in backfilling.decide(backfills, catalog, now, self._project.run_id):
                if self._append(decision):
                    _tell_waited(waiting, decision)
        self._tracker.refresh()

    @contextmanager
    def _checking(self, backfills: Backfills) -> Iterator[dict[str, Backfill]]:
        """The jobs that wait for others, by id; traced as a check where there are events since the last one."""
        waiting = {job.id: job for job in backfills.open if job.state is BackfillState.WAITING_UPSTREAM}
        if not waiting or backfills.position == self._checked:
            yield waiting
            return
        self._checked = backfills.position
        with span("backfill.check_upstream_completion", waiting=len(waiting)):
            yield waiting

    def _planned(self, run: RunState) -> Decision:
        """The plan of a run; a request that cannot be planned ends as a failed run that says why."""
        now = self._project.clock()
        try:
            facts = self._plan(run, now)
        except PASSING:
            raise
        except ServoError as problem:
            return self._refused(run, str(problem))
        except Exception as problem:
            # A custom mapping is anybody's code, and one run must not stop all others.
            log.exception("%s cannot be planned", run.run_id, extra={"action": "control.unplanned"})
            return self._refused(run, f"it cannot be planned: {type(problem).__name__}: {problem}")
        # At the moment of the plan: that is when its mappings were asked, and are asked again when it runs.
        return msgspec.structs.replace(self._decision(run, *facts), at=now)

    def _plan(self, run: RunState, now: datetime) -> tuple[Fact, ...]:
        """The plan of what can be made, and the end of what was asked for and cannot."""
        known = self._tracker.catalog
        state = state_of(self._project, catalog=known, now=now)
        wanted, left_out = require_some(run, known), gone(run, known)
        if run.request.source.kind == "backfill":
            # A person who names partitions is told at once; of thousands, one must not keep the others from being made.
            plan, unread = plan_of_what_can_be_made(state, wanted)
            left_out += unread
        else:
            selection = Selection(wanted=wanted, added=requested_additions(run, known))
            plan = require_inputs(plan_for(state, selection))
        return planned_without(run, plan_fact(plan, run.run_id), left_out, known)

    def _refused(self, run: RunState, reason: str) -> Decision:
        refused = RunFinished(run_id=run.run_id, outcome=Outcome.FAILED, source=run.request.source, reason=reason)
        return self._decision(run, RunPlanned(run_id=run.run_id, tasks=[]), refused)

    def _decision(self, run: RunState, *facts: Fact) -> Decision:
        return Decision(
            facts=facts,
            position=self._tracker.board.position,
            subjects=frozenset({run.run_id}),
            actor=DISPATCH,
            at=self._project.clock(),
        )

    def _pause(self) -> float:
        now = self._project.clock()
        wake = next_wake(self._tracker.board, now)
        due = _LONGEST_PAUSE_SECONDS if wake is None else (wake - now).total_seconds()
        return min(max(due, 0.0), _LONGEST_PAUSE_SECONDS)


def _tell_waited(waiting: dict[str, Backfill], decision: Decision) -> None:
    """Trace how long a backfill waited for others, once it waits no more."""
    for fact in decision.facts:
        if isinstance(fact, BackfillStateChanged) and (job := waiting.get(fact.backfill_id)) is not None:
            since = job.state_at or job.created_at
            past_span(
                "backfill.wait_for_upstream", since, decision.at, backfill_id=job.id, root=job.root, state=fact.state
            )
