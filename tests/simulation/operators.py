"""The people of a simulated world who recompute history."""

from __future__ import annotations

from collections.abc import Sequence

from servo.controllers.backfill_board import Backfill, Backfills, BackfillState
from servo.controllers.backfilling import cancelled, paused, resumed
from servo.errors import BackfillConflict, Conflict
from servo.events.automation import BackfillCreated
from servo.events.fact import Fact
from servo.operations.backfills.facts import retry_fact
from servo.partitions import PartitionSet
from servo.planning.backfills import propagate
from tests.simulation.ground import Actor, Ground
from tests.simulation.projects import random_targets
from tests.simulation.repairs import missing_partitions
from tests.support.backfill_stories import tree_facts


class Operators(Actor):
    """Ask for backfills, sometimes twice; pause, resume and cancel them; retry what failed.

    They leave alone what goes on by itself: a job that is blocked is freed or cancelled, what is paused is resumed in
    the end, and nothing else is done for a backfill that is stuck.
    """

    def __init__(self, world: Ground) -> None:
        super().__init__(world, "operators")
        self.backfills = Backfills(keep_ended=True)
        self.to_ask = self.random.choice([0, 1, 1, 2, 2])
        self.to_pause = self.random.choice([0, 1, 2, 3])
        self.to_cancel = self.random.choice([0, 1, 1, 2])
        self.to_retry = self.random.randint(0, 4)
        self.asked: list[list[BackfillCreated]] = []

    def is_satisfied(self) -> bool:
        at_the_head = self.backfills.position == self.world.ledger.head().position
        return not self.to_ask and at_the_head and not list(self.backfills.open)

    def step(self) -> None:
        self._look()
        chance = self.random.random()
        if self.to_ask and chance < 0.2:
            self._ask()
        elif self.asked and chance < 0.22:
            self.world.append([*self.random.choice(self.asked)], "alice")
            self.world.seen["backfill asked again"] += 1
        elif chance < 0.6:
            self._attend()
        self._look()

    def _look(self) -> None:
        self.backfills.take(self.news(self.backfills.position, surely=True))

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self) -> None:
        world, random = self.world, self.random
        targets = random_targets(random, world.catalog, world.now)
        jobs = propagate(
            world.catalog,
            targets,
            world.now,
            upstream_depth=random.choice([0, 1, 2, 20, 20]),
            downstream=random.random() < 0.25,
            current=self._current if random.random() < 0.3 else None,
        )
        facts = tree_facts(
            world.catalog,
            jobs,
            targets,
            lambda _: world.mint.next(),
            chunk_size=random.choice([1, 1, 2, 3]),
            concurrency=random.randint(1, 3),
            priority=random.choice([0, 0, 5]),
            newest_first=random.random() < 0.3,
        )
        self.to_ask -= 1
        self.asked.append(facts)
        world.append([*facts], "alice")
        if random.random() < 0.15:  # on second thoughts
            self._look()
            self._steer(random.choice(["paused", "cancelled"]), self.backfills.tree(facts[0].backfill_id))
        world.seen["backfill of several"] += len(targets) > 1
        world.seen["backfill of a tree"] += len(jobs) > 2

    def _current(self, asset_key: str) -> PartitionSet:
        return self.world.catalog.spec(asset_key).partitions.set_of(self.world.current(asset_key))

    # ── steering ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _attend(self) -> None:
        """See to one of them, if there is anything to do."""
        everything = list(self.backfills.jobs.values())
        if not everything:
            return
        job = self.random.choice(everything)
        tree = self.backfills.tree(job.root)
        if self.random.random() < 0.3:
            tree = [job]  # that one alone
        lost = [one for job in tree if not job.over for one in self.backfills.blockers(job)]
        chance = self.random.random()
        if any(job.state is BackfillState.PAUSED for job in tree):
            if self.to_cancel and chance < 0.1:
                self.to_cancel -= self._steer("cancelled", tree)
            elif chance < 0.5:
                self._steer("resumed", tree)
        elif lost:
            self._free(lost[0], tree)
        elif self.to_pause and chance < 0.25:
            self.to_pause -= self._steer("paused", tree)
        elif self.to_cancel and chance < (0.6 if any(map(_has_a_place, tree)) else 0.3):
            self.to_cancel -= self._steer("cancelled", tree)
        elif job.over and chance < (0.8 if job.state is BackfillState.CANCELLED else 0.4):
            self._retry(job)

    def _free(self, lost: Backfill, tree: Sequence[Backfill]) -> None:
        """Retry what blocks others, or give up."""
        if not self._retry(lost):
            self.world.seen["blocked and given up"] += self._steer("cancelled", tree)
        elif self.backfills.jobs[lost.id].is_retry:
            self.world.seen["retry of a retry"] += 1

    def _steer(self, what: str, tree: Sequence[Backfill]) -> bool:
        """Do something to a backfill or to a tree, unless one has changed meanwhile: then one must look again."""
        board = self.backfills
        try:
            facts: list[Fact] = {
                "paused": lambda: paused([*tree]),
                "resumed": lambda: resumed(board, [*tree]),
                "cancelled": lambda: cancelled([*tree], "no longer wanted"),
            }[what]()
            # Most interesting when a chunk is about to be planned.
            if self.random.random() < (0.9 if any(map(_has_a_place, tree)) else 0.5):
                self.world.interrupt()
            self.world.append(facts, "alice")
        except BackfillConflict:
            self.world.seen[f"cannot be {what}"] += 1
        except Conflict:
            self.world.seen["overtaken"] += 1
        else:
            self.world.seen[what] += 1
            return True
        return False

    def _retry(self, job: Backfill) -> bool:
        if not self.to_retry or job.state not in (BackfillState.FAILED, BackfillState.CANCELLED):
            return False
        board = self.backfills
        if board.has_succeeded(job.id) or any(not retry.over for retry in board.retries(job)):
            return False
        whole = job.state is BackfillState.CANCELLED and board.is_waited_for(job)
        if whole and job.active:
            return False
        wanted = missing_partitions(self.world.history(), job, whole=whole)
        if not wanted:
            return False
        backfill_id = self.world.mint.next()
        fact = retry_fact(
            job,
            job.fact.asset_selection[0],
            wanted,
            backfill_id=backfill_id,
            name=backfill_id,
            request_id=backfill_id,
            fingerprint=job.id,
            waits=not board.may_start(job),
            paused=board.is_paused(job.root),
        )
        self.to_retry -= 1
        self.asked.append([fact])
        self.world.append([fact], "alice")
        self.world.seen[f"retry of {job.state}"] += 1
        self.world.seen["retry of all that was cancelled"] += whole
        self.world.seen["retry while all is paused"] += fact.state == "PAUSED"
        self.world.seen["retry that waits"] += bool(fact.upstreams)
        return whole or job.state is BackfillState.FAILED


def _has_a_place(job: Backfill) -> bool:
    """Whether its next chunk may be planned at once."""
    free = len(job.active) < job.fact.max_concurrent_runs
    return job.state is BackfillState.RUNNING and free and job.next_chunk < job.chunks
