"""What the README and the quick start show works as it stands; test_demo.py has what they show of the demonstration."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.support import Folder

ROOT = Path(__file__).parents[2]
README, QUICKSTART = ROOT / "README.md", ROOT / "docs" / "quickstart.md"


def block(language: str) -> str:
    [found] = re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)
    return str(found)


def test_the_assets_run(empty: Folder) -> None:
    (empty.path / "definitions.py").write_text(block("python"))
    for day, amounts in {"2025-01-01": [1, 2, 4], "2025-01-02": [8, 16, 32]}.items():
        orders = [
            {"order_id": f"{day}-{amount}", "region": "us" if amount in (4, 32) else "eu", "amount": amount}
            for amount in amounts
        ]
        (empty.path / "landing" / day).mkdir(parents=True)
        (empty.path / "landing" / day / "orders.json").write_text("\n".join(map(json.dumps, orders)))
    assert "3 assets" in empty.ok("check")
    done = empty.servo("materialize", "+revenue", "--partitions", "2025-01-01..2025-01-02")
    assert done.returncode == 0, done
    read = empty.json("read", "revenue")
    found = [dict(zip(read["columns"], row, strict=True)) for row in read["rows"]]
    assert sorted((row["date"], row["region"], row["revenue"]) for row in found) == [
        ("2025-01-01", "eu", 3),
        ("2025-01-01", "us", 4),
        ("2025-01-02", "eu", 24),
        ("2025-01-02", "us", 32),
    ]


def test_the_settings_are_understood(empty: Folder) -> None:
    (empty.path / "servo.toml").write_text(block("toml"))
    script = "from servo.runtime import load_settings; s = load_settings(); print(s.ledger, s.storage, s.spark.master)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=empty.path, env=empty.environment(), capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["postgresql://servo@db/servo", "/mnt/lake/servo", "spark://host:7077"], done.stderr


@pytest.mark.parametrize("page", [README, QUICKSTART], ids=lambda page: page.name)
def test_every_command_exists(page: Path, empty: Folder) -> None:
    commands = set()
    for line in re.findall(r"^\$ servo (.*)$", page.read_text(), re.MULTILINE):
        words = shlex.split(line.partition(" && ")[0].partition(" #")[0])
        nouns = ("asset", "ledger", "partition", "run")
        commands.add(tuple(words[: 2 if words[0] in nouns else 1]))
    assert len(commands) > 5
    for command in sorted(commands):
        assert "Usage: servo" in empty.ok(*command, "--help")


@pytest.mark.parametrize("page", [README, QUICKSTART, ROOT / "ARCHITECTURE.md"], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text())
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []
    files = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", page.read_text())
    assert [file for file in files if not (ROOT / "src" / "servo" / file).exists()] == []
