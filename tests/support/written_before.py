"""Asking again what an earlier version was asked: over HTTP, by commands, and of the tables.

The script that wrote a golden project and the test that reads it use the same calls, so both see the same answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support import commands
from tests.support.traffic import PREFIX, free_port

REPLAYED = "Idempotency-Replayed"
_NOTHING: dict[str, Any] = {"columns": [], "rows": []}


def environment(**more: str) -> dict[str, str]:
    """This environment without what would reach into a project or its traces, and with one name for whoever types.

    However old the newest events are, a read folds them over the files and leaves the files as they are.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SERVO_", "OTEL_"))}
    return kept | {"LOGNAME": "tess", "USER": "tess", "SERVO_TAIL_AGE_SECONDS": "3000000000"} | more


@contextmanager
def served(folder: Path, token: str, *, workers: int = 0, **variables: str) -> Iterator[httpx.Client]:
    """A client of `servo up` in a folder. It listens beyond loopback, so it knows people by their tokens alone."""
    port = free_port()
    command = [sys.executable, "-m", "servo", "up", "--workers", str(workers), "--host", "0.0.0.0", "--port", str(port)]
    log = folder / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(**variables), stdout=output, stderr=subprocess.STDOUT
        )
    headers = {"Authorization": f"Bearer {token}"}
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}{PREFIX}", headers=headers, timeout=120) as client:
            until = time.monotonic() + 300
            while not _is_ready(client):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, f"the server is not ready: {log.read_text()}"
                time.sleep(0.1)
            yield client
    finally:
        process.terminate()
        process.wait(120)


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get(client.base_url.join("/readyz")).status_code == 200
    except httpx.TransportError:
        return False


def send(client: httpx.Client, request: Mapping[str, Any], body: Any = None) -> dict[str, Any]:
    """What a recorded request is answered, or the same request with another body."""
    content = request["body"] if body is None else body
    carried = {"params": content} if request["method"] == "DELETE" else {"json": content}
    answer = client.request(request["method"], request["path"], headers=request["headers"], **carried)
    return {"status": answer.status_code, "replayed": answer.headers.get(REPLAYED), "body": answer.json()}


def run_command(folder: Path, args: list[str]) -> dict[str, Any]:
    """How a command ends, and the document that it answers: on stdout, or on stderr where it fails."""
    done = commands.servo([*args, "--json"], cwd=folder, env=environment(), timeout=300)
    return {"code": done.returncode, "answer": json.loads(done.stdout or done.stderr)}


def rows(folder: Path, tables: Iterable[str]) -> dict[str, dict[str, Any]]:
    """All rows of tables with the names of their columns, as of the ledger's head, by one query."""
    chosen = ", ".join(f"(SELECT list(one) FROM {table} AS one) AS {table}" for table in tables)
    found = run_command(folder, ["query", f"SELECT {chosen}"])
    assert found["code"] == 0, found
    (lists,) = found["answer"]["rows"]
    return {
        table: {"columns": list(some[0]), "rows": [list(one.values()) for one in some]} if some else _NOTHING
        for table, some in zip(found["answer"]["columns"], lists, strict=True)
    }


def sorted_rows(found: Mapping[str, Any], columns: list[str]) -> list[str]:
    """The rows in these columns, each as text, in one order."""
    if not found["rows"]:
        return []
    places = [found["columns"].index(name) for name in columns]
    return sorted(json.dumps([row[place] for place in places], sort_keys=True) for row in found["rows"])
