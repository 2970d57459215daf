"""`servo demo`: the story of examples/orders, told by the commands that a person would type.

What it shows is what they answer. Beside them it asks for itself, and fails where the answers are not as it tells.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from servo.answers.values import moment
from servo.cli.interrupts import reacting
from servo.cli.output import duration
from servo.errors import NotFound
from servo.execution.spark_target import require_java
from servo.operations.assets.materializations import places, rows_of
from servo.operations.fields import parse_moment
from servo.operations.runs.views import progress_of, run_of
from servo.runtime.maintenance import Maintenance
from servo.runtime.settings import load_settings
from servo.runtime.states import state_of
from servo.runtime.wiring import Project, open_workspace
from servo.status.staleness import stale_counts

_FOLDER = Path(".servo") / "demo"
_EXAMPLE = Path(__file__).parents[3] / "examples" / "orders"  # in the checkout; it is no part of the package
_DAYS, _REGIONS = 31, 2
_BROKEN_DAY, _LATE_DAY = "2025-01-17", "2025-01-05"
_REPORT = ("month_report", "2025-01")

_STATUS = (
    "SELECT asset_key, last_attempt_outcome AS last_attempt, count(*) AS partitions,"
    " count(materialization_id) AS published FROM partition_status GROUP BY ALL ORDER BY ALL"
)
_BACKFILLS = "SELECT state, count(*), sum(total_partitions) FROM backfills GROUP BY ALL"
_READ_BY_THE_REPORT = """
    SELECT count(*) FROM lineage JOIN partition_status USING (asset_key, partition_key, materialization_id)
    WHERE asset_key = 'shop/month_report'"""

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
        errors = self._child.communicate()[1]
        ended, self._child = self._child.returncode, None
        self.go_on()
        if ended == _CLOSED_PIPE:
            raise BrokenPipeError
        if ended != code:
            if errors:
                click.echo(errors.decode(errors="replace").rstrip(), err=True)
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
        with open_workspace(load_settings(self.folder, self.environ)) as project:
            yield project

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        with self.project() as project:
            return list(Maintenance(project).query(sql).rows)

    def stale(self) -> int:
        """How many partitions are stale."""
        with self.project() as project:
            return sum(stale_counts(state_of(project), transitive=True).values())

    def newest_run(self) -> str:
        return str(self.ask("SELECT run_id FROM runs ORDER BY requested_at DESC LIMIT 1")[0][0])

    def counts(self, run_id: str) -> dict[str, int]:
        with self.project() as project:
            run = progress_of(run_of(state_of(project), run_id))
        return {"succeeded": run.succeeded, "failed": run.failed, "skipped": run.skipped}

    def data(self, asset: str, partition: str, as_of: str | None = None) -> tuple[str, list[str]]:
        """The content hash of a partition, and its rows."""
        when = None if as_of is None else parse_moment(as_of)
        with self.project() as project:
            got = rows_of(project.storage, *places(state_of(project, when), asset, [partition]), None)
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
    while "✓ up" not in (output := log.read_text(errors="replace")) or not _at_work(story):
        story.go_on()
        if process.poll() is not None or time.monotonic() > deadline:
            reason = output.strip().rpartition("\n")[2] or "it says nothing"
            raise click.ClickException(f"`servo up` did not come up: {reason}")
        time.sleep(0.1)
    click.echo(output.partition("\n")[0])


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


@click.command()
def demo() -> None:
    """Show what Servo does, from nothing to results.

    A shop's orders: Spark computes a month of them, a broken day is kept out, repaired and taken in, the month's report
    is traced back to what it was made from, late orders are followed through, and a week is backfilled. Everything is
    in .servo/demo, made anew each time. Fails if anything is not as it tells.
    """
    require_java(os.environ)  # in one line, before Spark says it in many
    began = time.monotonic()
    story = Story(_made_anew())
    with reacting(story.stop):
        _tell(story)
    click.echo()
    click.secho(f"✓ all of this in {duration(time.monotonic() - began)}; nothing is left running", fg="green")
    _what_next()


def _tell(story: Story) -> None:
    story.step("A shop delivers a month of orders, made up by Spark. One day's file comes twice")
    story.run(sys.executable, "generate.py", shown="python generate.py", quiet=True)

    story.step("Four assets in definitions.py: do they fit together, and what would a run of the month do?")
    story.servo("check")
    story.servo("plan", "+month_report", "--partitions", "2025-01")

    with up(story):
        story.step("Compute the month. The day whose orders came twice is not let in, and nothing is made from it")
        story.servo("materialize", "+month_report", "--partitions", "2025-01", code=1)
        failed = story.newest_run()
        story.expect("of that run", story.counts(failed), {"succeeded": 120, "failed": 1, "skipped": 4})

        story.step("What is there? The other thirty days, from raw orders to revenue by region")
        story.servo("partition", "status")
        story.expect("of what is there", story.ask(_STATUS), _without_a_day())

        story.step("Somebody repairs the delivery. What failed and what was skipped runs again, and no more")
        story.run("rm", f"landing/date={_BROKEN_DAY}/again.json")
        story.servo("run", "retry", failed)
        retried = story.counts(story.newest_run())
        story.expect("of the retry", retried, {"succeeded": 5, "failed": 0, "skipped": 0})
        story.expect("of what is there", story.ask(_STATUS), _complete())
        story.servo("read", "month_report", "2025-01")

        story.step("What was the report made from? Each slice that it read is on record")
        story.servo("lineage", "upstream", "month_report", "2025-01")
        story.expect("of its lineage", story.ask(_READ_BY_THE_REPORT), [(_DAYS * _REGIONS,)])

        before, then = story.data(*_REPORT), story.now()
        story.step("Later two more orders of one day arrive, and that day is computed again. What must follow?")
        story.run("cp", "late.json", f"landing/date={_LATE_DAY}/")
        story.servo("materialize", f"raw_orders@{_LATE_DAY}")
        story.servo("partition", "why", "month_report", "2025-01")
        story.servo("plan", "--stale", "*")

        story.step("Exactly that runs, and nothing else")
        story.servo("materialize", "--stale", "*")
        story.expect("of what is stale", story.stale(), 0)
        story.servo("read", "month_report", "2025-01")
        story.expect("of the new report", story.data(*_REPORT) == before, False)

        story.step("Nothing was overwritten. What did the report say before?")
        story.servo("partition", "history", "month_report", "2025-01")
        story.servo("read", "month_report", "2025-01", "--as-of", then)
        story.expect("of the report of then", story.data(*_REPORT, as_of=then), before)
        click.secho(f"  ✓ the report of then, to the last bit: content {before[0][:12]}…", fg="green")

        story.step("A week is to be computed anew, with all that it is made from first: a backfill, in chunks")
        week = ("revenue", "--start", "2025-01-06", "--end", "2025-01-12", "--name", "week-2")
        story.servo("backfill", "create", *week, "--include-upstream", "--max-upstream-depth", "2", "--wait")
        story.expect("of the backfill", story.ask(_BACKFILLS), [("SUCCEEDED", 3, 4 * 7)])

        story.step("Was anything in the ledger changed, removed or inserted?")
        story.servo("ledger", "verify")


def _without_a_day() -> list[tuple[Any, ...]]:
    """Thirty days of everything, one day that was not let in, and no report."""
    days, slices = _DAYS - 1, (_DAYS - 1) * _REGIONS
    return [
        ("shop/orders", "SUCCEEDED", days, days),
        ("shop/raw_orders", "FAILED", 1, 0),
        ("shop/raw_orders", "SUCCEEDED", days, days),
        ("shop/revenue", "SUCCEEDED", slices, slices),
    ]


def _complete() -> list[tuple[Any, ...]]:
    counts = {"month_report": 1, "orders": _DAYS, "raw_orders": _DAYS, "revenue": _DAYS * _REGIONS}
    return [(f"shop/{name}", "SUCCEEDED", count, count) for name, count in counts.items()]


def _made_anew() -> Path:
    """The example project in a folder of its own, in which nothing was run yet."""
    if not (_EXAMPLE / "servo.toml").is_file():
        raise NotFound(
            "the demonstration's project is not part of this installation",
            hint="run `make demo` in a checkout, or begin with `servo init`",
        )
    shutil.rmtree(_FOLDER, ignore_errors=True)
    left_behind = shutil.ignore_patterns("landing", ".*", "__pycache__", "spark-warehouse")
    shutil.copytree(_EXAMPLE, _FOLDER, ignore=left_behind)
    return _FOLDER.absolute()


def _what_next() -> None:
    program = Path(sys.executable).with_name("servo")
    servo = min(os.path.relpath(program, _FOLDER), str(program), key=len)
    commands = [
        ("asset list", "the assets; they are in definitions.py"),
        ("run list", "the runs, the newest first"),
        ("backfill status week-2", "how the backfill went"),
        ("read revenue 2025-01-05,eu", "data of one slice"),
        ('partition rollback month_report 2025-01 --reason "not yet"', "back to the report of before"),
        ("query --tables", "every table there is"),
        ("materialize month_report@2025-01", "a run of your own; it brings a worker along"),
    ]
    width = max(len(command) for command, _ in commands)
    click.echo()
    click.secho("Try next", bold=True)
    click.echo(f"  cd {_FOLDER}")
    for command, what in commands:
        click.echo(f"  {servo} {command:<{width}}  # {what}")
    click.echo("A project of your own in ten minutes: docs/quickstart.md")
