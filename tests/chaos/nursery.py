"""Children that work until they are killed.

`python -m tests.chaos.nursery` imports everything and opens nothing; for each line on its input it forks a child that
works on a workspace, says the child's process id, waits for its end and says how it ended. So a round costs a fork
and not the seconds of importing DuckDB and Arrow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import IO, Any

import pandas as pd  # Arrow loads it at its first array, which must not be in each child

from servo import faults
from servo.clock import system_clock
from servo.events import Proposal
from servo.ledger.archive import archive_events
from servo.projections.compactor import Compactor
from tests.integration.projection_support import Place, cancel, finished

# What an append records together; whoever finds one of them must find all.
TOGETHER = 3
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Work:
    """One child's life: where, called what, and at which failure point it ends."""

    folder: str
    name: str
    url: str | None = None
    kill_at: str | None = None
    appends: int = 1000
    compacts: bool = True

    @property
    def receipts(self) -> Path:
        return Path(self.folder) / "receipts"

    @property
    def reached(self) -> Path:
        return Path(self.folder) / f"reached-{self.name}"


def work(work: Work) -> None:
    """Append, compact, archive and remove files; write down each receipt once `append` has returned."""
    if work.kill_at is not None:
        _arm(work)
    place = Place(Path(work.folder), url=work.url)
    compactor: Compactor | None = None
    with work.receipts.open("a") as receipts:
        # Not all begin with the same: one that is killed early was compacting, another archiving.
        first = hash_of(work.name) % 6
        for number in range(first, first + work.appends):
            _append(place, work, number, receipts)
            if not work.compacts:
                continue
            if number % 3 == 2:
                compactor = compactor or _compactor(place)
                compactor.compact()
            if number % 6 == 5:
                archive_events(
                    place.ledger,
                    place.archive,
                    before=system_clock() - timedelta(milliseconds=20),
                    segment_events=8,
                )
            if compactor is not None and number % 10 == 9:
                compactor.remove_unneeded_files()


def _compactor(place: Place) -> Compactor:
    """One with no memory to spare, which merges files as it does large ones."""
    return Compactor(place.store, place.history, clock=system_clock, mint=place.mint_text, memory=0)


def _append(place: Place, work: Work, number: int, receipts: IO[str]) -> None:
    batch = [_proposal(place, f"{work.name}.{number}", member) for member in range(TOGETHER)]
    for receipt, proposal in zip(place.ledger.append(batch), batch, strict=True):
        print(json.dumps([proposal.fact.idempotency_key, receipt.event_id, receipt.position]), file=receipts)
    receipts.flush()
    os.fsync(receipts.fileno())


def _proposal(place: Place, name: str, member: int) -> Proposal:
    """Rows of their own, and partitions that are made again and again."""
    if member:
        return cancel(f"{name}.{member}")
    keys = [f"shard=i:{hash_of(name) % 7 + n}" for n in range(5)]
    return finished(hash_of(name), keys, place.mint_text, run=f"{name}.{member}")


def hash_of(text: str) -> int:
    """The same in every process, unlike `hash`."""
    return sum(text.encode())


def _arm(work: Work) -> None:
    """As from the environment, with a note that the point was reached."""
    assert work.kill_at is not None
    os.environ["SERVO_FAULTS"] = work.kill_at
    faults._arm_from_environment()
    [(point, kill)] = faults._armed.items()
    visits = 0
    one_at_a_time = Lock()  # files are written side by side, and each is a visit

    def reached() -> None:
        nonlocal visits
        with one_at_a_time:
            visits += 1
            work.reached.write_text(f"{point}=kill:{visits}")
            kill()

    faults._armed[point] = reached


def serve() -> None:
    assert pd.__name__ in sys.modules
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                work(Work(**json.loads(line)))
            except BaseException as problem:  # noqa: BLE001 (a forked child must never return into the loop)
                print(repr(problem), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


class Nursery:
    """The other end: starts a child and waits for it, in the process of the test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self, work: Work) -> int:
        self._say(json.dumps(work.__dict__))
        return int(self._hear())

    def wait(self) -> int:
        return int(self._hear())

    def _say(self, text: str) -> None:
        assert self._process.stdin is not None
        print(text, file=self._process.stdin, flush=True)

    def _hear(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, "the nursery is gone"
        return answer


@contextmanager
def nursery(**environment: Any) -> Iterator[Nursery]:
    command = [sys.executable, "-m", "tests.chaos.nursery"]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Nursery(process)
        assert process.stdin is not None
        process.stdin.close()


if __name__ == "__main__":
    serve()
