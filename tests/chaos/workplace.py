"""A workshop whose runs are asked for and followed, and whose processes a test may kill, pause and continue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servo.answers.runs import RunProgress
from servo.runtime import load_settings, open_workspace
from tests.support.operating import Runs
from tests.support.questions import Data
from tests.support.workshop import ME, PATIENCE, Workshop, children, is_running

__all__ = ["ME", "PATIENCE", "PULSE", "Site", "children", "is_running", "site"]

# Short, so that a lost worker is soon noticed; and long enough for a machine that has other things to do.
PULSE = {"SERVO_WORKER_LEASE_SECONDS": "4", "SERVO_WORKER_HEARTBEAT_SECONDS": "0.5"}


class Site(Workshop):
    """A workshop with ways to ask for runs, to tell its assets what to do, and to look at its data."""

    def __init__(self, path: Path, definitions: str, settings: str, variables: dict[str, str], below: str) -> None:
        (path / below).mkdir(parents=True, exist_ok=True)
        (path / "servo.toml").write_text(f'namespace = "shop"\n{settings}\n[spark]\nmaster = "local[2]"\n')
        (path / "definitions.py").write_text(definitions)
        variables = PULSE | variables
        project = open_workspace(load_settings(path / below, variables), create=True)
        super().__init__(project, here=path / below, variables=variables)
        self.runs = Runs(project)
        self.data = Data(project)

    # ── telling the assets what to do ────────────────────────────────────────────────────────────────────────────

    def tell(self, name: str, text: str = "") -> None:
        """Leave a note that the assets look for; complete when it is there."""
        note = self.path / "notes" / name
        note.parent.mkdir(exist_ok=True)
        part = note.with_name(f".{name}.part")
        part.write_text(text)
        part.replace(note)

    def untell(self, name: str) -> None:
        (self.path / "notes" / name).unlink(missing_ok=True)

    def notes(self, prefix: str) -> list[str]:
        folder = self.path / "notes"
        return sorted(note.name for note in folder.glob(f"{prefix}*")) if folder.is_dir() else []

    # ── from inside ──────────────────────────────────────────────────────────────────────────────────────────────

    def request(self, *selection: str, partitions: str | None = None, **options: Any) -> str:
        return self.runs.request(list(selection), partitions=partitions, actor=ME, **options).run_id

    def wait(self, run_id: str) -> RunProgress:
        """How it ended."""
        ended = self.runs.follow(run_id, lambda _: None, timeout=PATIENCE)
        assert ended.ended, (ended, self.said())
        return ended

    def do(self, *selection: str, partitions: str | None = None, **options: Any) -> RunProgress:
        return self.wait(self.request(*selection, partitions=partitions, **options))

    def task(self, run_id: str, number: int = 0) -> Any:
        return self.runs.progress(run_id).tasks[number]

    def rows(self, asset: str, *partitions: str, as_of: Any = None) -> list[tuple[Any, ...]]:
        return sorted(self.data.read(asset, partitions, as_of=as_of).rows)

    def hashes(self, asset: str, *partitions: str, as_of: Any = None) -> dict[str, str | None]:
        return {one.key: one.content_hash for one in self.data.places(asset, partitions, as_of=as_of)[1]}

    def query(self, sql: str, **when: Any) -> list[Any]:
        when = when or {"fresh": True, "timeout": 60.0}
        return list(self.project.reader.query(sql, **when).rows)

    def head(self) -> str | None:
        """The newest event: by its id, everything can be asked as of then."""
        return self.project.ledger.head().event_id

    def files_of(self, materialization_id: str) -> list[Path]:
        return sorted((self.path / ".servo").rglob(f"{materialization_id}/*.parquet"))

    def pid_of(self, worker: str | None) -> int | None:
        """The process that is that worker now."""
        return next((one.pid for one in self.project.leases.live() if one.id == worker), None)


@contextmanager
def site(
    path: Path, definitions: str, settings: str = "", variables: dict[str, str] | None = None, below: str = ""
) -> Iterator[Site]:
    made = Site(path, definitions, settings, variables or {}, below)
    try:
        yield made
    finally:
        made.close()
