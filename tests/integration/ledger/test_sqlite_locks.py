"""A process that opens a ledger twice keeps SQLite's locks on it.

POSIX gives up all locks that a process has on a file as soon as it closes any descriptor of it. Then another process
that leaves takes itself for the last, and takes the write-ahead log away from whoever still writes to it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from servo.events import Proposal
from servo.events.definitions import Source
from servo.events.model import RunRequested
from servo.runtime import Project, load_settings, open_workspace

_ANOTHER = """
from pathlib import Path
from servo.runtime import load_settings, open_workspace

with open_workspace(load_settings(Path.cwd(), {})) as project:
    print(project.ledger.head().position)
"""


def record(project: Project, name: str) -> int:
    fact = RunRequested(
        run_id=f"run_{name}",
        run_key=f"manual:{name}",
        request_fingerprint="f",
        asset_selection=["shop/orders"],
        source=Source(kind="manual", id="somebody"),
    )
    (receipt,) = project.ledger.append([Proposal(fact=fact, occurred_at=project.clock(), actor="person:me")])
    return receipt.position


def test_another_look_at_an_open_ledger_gives_up_no_lock(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {})
    with open_workspace(settings, create=True) as project:
        assert record(project, "a") == 1
        wal = next(tmp_path.rglob("ledger.db-wal"))
        with open_workspace(settings) as again:
            assert again.ledger.head().position == 1
        done = subprocess.run(
            [sys.executable, "-c", _ANOTHER], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout == "1\n"
        assert wal.exists(), "it was not the last that had the file open"
        assert record(project, "b") == 2
        assert project.ledger.head().position == 2
