"""One project, three places to compute it: this machine, a standalone cluster, a Connect server. Equal hashes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.spark_clusters import Connect, Standalone

pytest_plugins = ("tests.integration.cluster_fixtures",)

_EXAMPLE = Path(__file__).parents[3] / "examples" / "orders"
_DAYS = ("2025-01-01", "2025-01-02")
_PATIENCE = 1200  # seconds; a wait ends as soon as what is waited for is so


def _project(path: Path) -> Path:
    """The example as it is, with a few deliveries; it runs where its settings say, which here is the environment."""
    shutil.copytree(_EXAMPLE, path, ignore=shutil.ignore_patterns(".servo", "landing", "__pycache__"))
    for day in _DAYS:
        folder = path / "landing" / f"date={day}"
        folder.mkdir(parents=True)
        lines = [
            {
                "order_id": f"{day}-{number}",
                "region": "eu" if number % 3 else "us",
                "sku": f"sku-{number % 4}",
                "quantity": number % 5 + 1,
                "price": f"{number}.25",
                "status": "paid" if number % 7 else "cancelled",
            }
            for number in range(40)
        ]
        (folder / "orders.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _servo(project: Path, *words: str, **variables: str) -> Any:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SERVO_", "SPARK_"))}
    clean["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_SUBMIT_OPTS"]  # which make JVMs quick, and say nothing of a place
    clean["SERVO_SPARK_TIMEOUT_SECONDS"] = str(_PATIENCE)
    done = subprocess.run(
        [sys.executable, "-m", "servo", *words, "--json"],
        cwd=project,
        env=clean | variables,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr + _worker_logs(project)
    return json.loads(done.stdout)


def _worker_logs(project: Path) -> str:
    return "".join(log.read_text(errors="replace")[-3000:] for log in project.glob(".servo/logs/worker-*.log"))


def _computed(path: Path, **variables: str) -> dict[tuple[str, str], str]:
    """The content hashes of all partitions, once the project has run."""
    project = _project(path)
    run = _servo(project, "materialize", "+revenue", "--partitions", f"{_DAYS[0]}..{_DAYS[-1]}", **variables)
    assert run["status"] == "SUCCEEDED"
    answer = _servo(project, "query", "SELECT asset_key, partition_key, content_hash FROM partition_status")
    return {(asset, key): content for asset, key, content in answer["rows"]}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    hashes = _computed(tmp_path_factory.mktemp("here") / "orders", SERVO_SPARK_MASTER="local[*]")
    assert len(hashes) == 2 + 2 + 4
    assert all(hashes.values())
    return hashes


def test_a_standalone_cluster_gives_the_same(
    here: dict[tuple[str, str], str], standalone_cluster: Standalone, tmp_path: Path
) -> None:
    assert _computed(tmp_path / "orders", SERVO_SPARK_MASTER=standalone_cluster.address) == here


def test_a_connect_server_gives_the_same(
    here: dict[tuple[str, str], str], connect_place: Connect, tmp_path: Path
) -> None:
    assert _computed(tmp_path / "orders", SPARK_REMOTE=connect_place.address) == here
