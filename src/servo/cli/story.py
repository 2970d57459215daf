"""A story told by commands: typed in a project's folder one after another, and checked for what they came to."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from servo.cli.values import moment
from servo.operations.moments import parse_moment

if TYPE_CHECKING:
    from servo.runtime.wiring import Project

_START_SECONDS = 90.0  # for `servo up` to be at work
_STOP_SECONDS = 60.0  # for it to end
_GRACE_SECONDS = 5.0  # for it to end by itself after a Ctrl-C, which the terminal sends to it too
_CLOSED_PIPE = 141


class Story:
    """Types commands in the project's folder, and looks for itself at what they came to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stopped = False
        self._child: subprocess.Popen[bytes] | None = None
        # Whoever has a project of their own in the environment does not mean it to be this one.
        self.environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("SERVO_") and name not in ("SPARK_REMOTE", "_SERVO_COMPLETE")
        }

    def stop(self) -> None:
        """A signal came: end what is running, and tell no more."""
        self.stopped = True
        if self._child is None:
            return
        with suppress(ProcessLookupError):
            if os.getpgid(self._child.pid) == self._child.pid:
                os.killpg(self._child.pid, signal.SIGTERM)
            else:
                self._child.terminate()

    def go_on(self) -> None:
        if self.stopped:
            raise click.Abort

    @staticmethod
    def step(title: str) -> None:
        click.echo()
        click.secho(f"▸ {title}", bold=True)

    def servo(self, *words: str, code: int = 0, shown: str | None = None) -> None:
        """Run a command of Servo; what it answers goes where our own words go."""
        self.run(sys.executable, "-m", "servo", *words, code=code, shown=shown or shlex.join(["servo", *words]))

    def run(self, *command: str, code: int = 0, shown: str | None = None, quiet: bool = False) -> None:
        """Run any command. One that is `quiet` has a stderr that is shown only if it fails, and may have children."""
        self.go_on()
        shown = shown or shlex.join(command)
        click.secho(f"$ {shown}", fg="cyan")
        sys.stdout.flush()
        # What starts Spark gets a group of its own: the JVM is to end with it.
        self._child = self.start(*command, stderr=subprocess.PIPE if quiet else None, group=0 if quiet else None)
        if self.stopped:
            self.stop()  # the signal came while it was being started
        said = self._child.communicate()[1]
        ended, self._child = self._child.returncode, None
        self.go_on()
        if ended == _CLOSED_PIPE:
            raise BrokenPipeError
        if ended != code:
            if said:
                click.echo(said.decode(errors="replace").rstrip(), err=True)
            raise click.ClickException(f"the demonstration went wrong: `{shown}` ended with {ended}, not with {code}")

    def start(
        self, *command: str, stdout: Any = None, stderr: Any = None, group: int | None = None
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            process_group=group,
        )

    @staticmethod
    def expect(what: str, found: object, expected: object) -> None:
        if found != expected:
            raise click.ClickException(
                f"the demonstration went wrong: {what} it expects {expected!r:.300}, and finds {found!r:.300}"
            )

    # ── looking for itself ───────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def project(self) -> Iterator[Project]:
        from servo.runtime.settings import load_settings
        from servo.runtime.wiring import open_workspace

        with open_workspace(load_settings(self.folder, self.environ)) as project:
            yield project

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        from servo.runtime.service import Service

        with self.project() as project:
            return list(Service(project).query(sql).rows)

    def stale(self) -> int:
        """How many partitions are stale."""
        from servo.runtime.states import state_of
        from servo.status.staleness import stale_counts

        with self.project() as project:
            return sum(stale_counts(state_of(project), transitive=True).values())

    def newest_run(self) -> str:
        return str(self.ask("SELECT run_id FROM runs ORDER BY requested_at DESC LIMIT 1")[0][0])

    def counts(self, run_id: str) -> dict[str, int]:
        from servo.runtime.runs import Runs

        with self.project() as project:
            run = Runs(project).progress(run_id)
        return {"succeeded": run.succeeded, "failed": run.failed, "skipped": run.skipped}

    def data(self, asset: str, partition: str, as_of: str | None = None) -> tuple[str, list[str]]:
        """The content hash of a partition, and its rows."""
        from servo.runtime.data import Data

        when = None if as_of is None else parse_moment(as_of)
        with self.project() as project:
            got = Data(project).read(asset, [partition], as_of=when)
        [made] = got.materializations
        return str(made.content_hash), sorted(map(str, got.rows))

    def now(self) -> str:
        with self.project() as project:
            return moment(project.clock())


@contextmanager
def up(story: Story) -> Iterator[None]:
    """`servo up` beside the story: one warm worker for all of it, so that Spark starts once."""
    story.step("A control loop and one worker, for as long as we need them")
    click.secho("$ servo up &", fg="cyan")
    log = story.folder / "up.log"
    with log.open("wb") as sink:
        process = story.start(sys.executable, "-m", "servo", "up", stdout=sink, stderr=subprocess.STDOUT)
    try:
        _wait_until_up(story, process, log)
        yield
    finally:
        _end(process, patience=_GRACE_SECONDS if story.stopped else 0.0)
    story.expect("of `servo up`, which is told to end,", process.returncode, 0)


def _wait_until_up(story: Story, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while "✓ up" not in (said := log.read_text(errors="replace")) or not _at_work(story):
        story.go_on()
        if process.poll() is not None or time.monotonic() > deadline:
            reason = said.strip().rpartition("\n")[2] or "it says nothing"
            raise click.ClickException(f"`servo up` did not come up: {reason}")
        time.sleep(0.1)
    click.echo(said.partition("\n")[0])


def _at_work(story: Story) -> bool:
    with story.project() as project:
        return {holder.kind for holder in project.leases.live()} >= {"control", "worker"}


def _end(process: subprocess.Popen[bytes], patience: float) -> None:
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
