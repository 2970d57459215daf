"""How fast the command line answers, from a cold start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, alternating
from bench.project import million

TIMES = 9
SERVO = [str(Path(sys.executable).with_name("servo"))]


def help_time() -> Iterator[Figure]:
    ours, theirs = alternating(
        lambda: _run([*SERVO, "--help"]), lambda: _run([sys.executable, "-c", "pass"]), times=TIMES
    )
    yield Figure(
        id="cli.help",
        value=ours * 1000,
        unit="ms",
        size=1,
        ratio=ours / theirs,
        baseline="python -c pass",
        aim="value < 200",
    )


def cold_query() -> Iterator[Figure]:
    """Counts over a million partitions from a process that has just been started."""
    project = million()
    environment = {
        "SERVO_LEDGER": f"sqlite:{project.folder / 'ledger.db'}",
        "SERVO_PROJECTIONS": str(project.folder / "cold"),
        "SERVO_TENANT": "bench",
        "SERVO_WORKSPACE": "main",
    }
    place = project.folder / "cold" / "bench" / "main"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(project.store.root)
    sql = "SELECT asset_key, last_attempt_outcome, count(*) FROM partition_status GROUP BY ALL"
    ours, theirs = alternating(
        lambda: _run([*SERVO, "query", sql, "--json"], **environment),
        lambda: _run([sys.executable, "-c", "import duckdb"]),
        times=TIMES,
    )
    yield Figure(
        id="cli.query",
        value=ours,
        unit="s",
        size=project.partitions,
        ratio=ours / theirs,
        baseline="python -c 'import duckdb'",
        aim="value < 1",
    )


def _run(command: list[str], **environment: str) -> None:
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **environment})
