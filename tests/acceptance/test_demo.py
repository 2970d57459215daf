"""`servo demo` from outside: its story is true, it leaves nothing running, and what it and the README show works."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from servo.cli.demo import Story
from tests.acceptance.support import Folder

README = Path(__file__).parents[2] / "README.md"
LONGEST_SECONDS = 600  # of the demonstration, on a machine that is busy with other things
RUN = re.compile(r"run_\w+")


def plain(line: str) -> str:
    """A line whatever its columns are set apart by, and whichever run it speaks of."""
    return RUN.sub("run", " ".join(line.split()))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, str]:
    """The folder in which the demonstration ran, and what it said. Somebody else's settings do not reach it."""
    outside = Folder(tmp_path_factory.mktemp("demo"), variables={"SERVO_TENANT": "mine", "SERVO_LEDGER": "sqlite:mine"})
    done = subprocess.run(
        [sys.executable, "-m", "servo", "demo"],
        cwd=outside.path,
        env=outside.environment(),
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in outside.path.iterdir()] == [".servo"]
    return Folder(outside.path / ".servo" / "demo"), done.stdout


def test_tells_the_whole_story(told: tuple[Folder, str]) -> None:
    folder, said = told
    statuses = "SELECT status, count(*) FROM runs GROUP BY ALL ORDER BY ALL"
    assert folder.rows(statuses) == [["FAILED", 1], ["SUCCEEDED", 3 + 4]]  # four chunks of the backfill among them
    assert folder.rows("SELECT tenant_id FROM runs LIMIT 1") == [["default"]]
    failed = folder.rows("SELECT asset_key, check_name, partition_key FROM check_results WHERE NOT passed")
    assert failed == [["shop/raw_orders", "unique(order_id)", "date=d:2025-01-17"]]
    for moment in ("shop/month_report SKIPPED", "✓ the report of then", "events are as they were recorded"):
        assert moment in said


def test_leaves_nothing_running(told: tuple[Folder, str]) -> None:
    [worker] = re.findall(r"workers +process (\d+)", (told[0].path / "up.log").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(int(worker), 0)


def test_what_to_try_next_works(told: tuple[Folder, str]) -> None:
    folder, said = told
    commands = re.findall(r"^  (\S*servo .*?) +# ", said, re.MULTILINE)
    assert len(commands) == 7
    for command in commands:
        if "materialize" not in command:  # which would start Spark once more, and is tested elsewhere
            done = subprocess.run(
                shlex.split(command), cwd=folder.path, env=folder.environment(), capture_output=True, check=False
            )
            assert (done.returncode, done.stderr) == (0, b""), (command, done)


def test_the_readme_shows_what_it_says(told: tuple[Folder, str]) -> None:
    [shown] = re.findall(r"```\n(\$ servo plan.*?)```", README.read_text(), re.DOTALL)
    said = {plain(line) for line in told[1].splitlines()}
    lines = [plain(line) for line in shown.splitlines() if line]
    assert len(lines) > 20
    # A line that ends with … is shown to there.
    begun = [line for line in lines if any(one.startswith(line.removesuffix("…")) for one in said)]
    assert [line for line in lines if line not in (begun if line.endswith("…") else said)] == []


def test_the_questions_of_the_readme_are_answered(told: tuple[Folder, str]) -> None:
    asked = README.read_text().partition("## Ask it")[2].partition("```console\n")[2].partition("```")[0]
    commands = re.findall(r"^\$ servo (.*?)(?: {2,}#.*)?$", asked, re.MULTILINE)
    assert len(commands) == 16
    for command in commands:
        assert told[0].ok(*shlex.split(command))


# ── when it is not as it should be ───────────────────────────────────────────────────────────────────────────────


def test_without_java_nothing_is_begun(empty: Folder) -> None:
    empty.variables["JAVA_HOME"] = str(empty.path / "nowhere")
    assert "does not run" in empty.fails(1, "demo")
    assert list(empty.path.iterdir()) == []


def test_a_story_that_is_not_true_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    story = Story(tmp_path)
    with pytest.raises(click.ClickException, match="ended with 3, not with 1"):
        story.run(sys.executable, "-c", "import sys; sys.exit('why' and 3)", code=1)
    with pytest.raises(click.ClickException, match="it expects 2, and finds 1"):
        story.expect("of the sum", 1, 2)
    with pytest.raises(click.ClickException):
        story.run(sys.executable, "-c", "import sys; sys.exit('this is why')", quiet=True)
    assert "this is why" in capfd.readouterr().err


def test_can_be_interrupted(empty: Folder) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "servo", "demo"],
        cwd=empty.path,
        env=empty.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    began = time.monotonic()
    at_work = ["pgrep", "-P", str(process.pid), "-f", "generate.py"]
    while subprocess.run(at_work, stdout=subprocess.DEVNULL, check=False).returncode:
        assert time.monotonic() - began < 240, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=600)
    assert process.returncode == 130, said
    assert said[1] == "servo: interrupted\n"
