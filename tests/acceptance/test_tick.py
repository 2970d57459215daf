"""`servo tick --work`: what is due is asked for and computed, by one command and with Spark."""

from __future__ import annotations

import json
from pathlib import Path

from tests.acceptance.support import Folder

DEFINITIONS = """
from pathlib import Path
import servo
from servo import Daily, asset

@asset(partitions=Daily("date", start="2025-01-01"))
def numbers(context):
    if (Path(__file__).parent / "poison").exists():
        raise ValueError("not today")
    return context.spark.range(3)

@servo.sensor
def once(context):
    if context.cursor is None:
        context.cursor = "done"
        return [servo.RunRequest(key=day, select="numbers", partitions=[day]) for day in ("2025-01-01", "2025-01-02")]
"""


def test_a_pass_that_works_sees_its_runs_through(tmp_path: Path) -> None:
    (tmp_path / "servo.toml").write_text('namespace = "shop"\n\n[spark]\nmaster = "local[2]"\n')
    (tmp_path / "definitions.py").write_text(DEFINITIONS)
    folder = Folder(tmp_path)
    done = folder.servo("tick", "--work")
    assert done.returncode == 0, done
    assert done.stdout.startswith("✓ 0 ticks, 1 evaluation")
    assert done.stdout.count("✓ SUCCEEDED run_") == 2
    assert len(folder.json("read", "numbers")["rows"]) == 6
    # Nothing is left to do, and no worker is started for that.
    again = folder.json("tick", "--work")
    assert (again["runs_failed"], again["ticks"]) == (0, 0)
    (tmp_path / "poison").touch()
    folder.json("sensor", "reset-cursor", "once")
    folder.json("materialize", "numbers@2025-01-05", "--no-wait")
    failed = folder.servo("tick", "--work", "--json")
    assert failed.returncode == 1, failed
    assert json.loads(failed.stdout)["runs_failed"] == 1
