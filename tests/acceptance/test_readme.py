"""What the README, the quick start and the Python reference show works.

test_demo.py has what they show of the demo, and tests/integration/operations/test_reference.py what the reference does
with Spark.
"""

from __future__ import annotations

import doctest
import inspect
import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import servo
from servo import check, mapping
from tests.acceptance.support import Folder
from tests.support.commands import OWN_JVM
from tests.support.served import house

ROOT = Path(__file__).parents[2]
README, QUICKSTART = ROOT / "README.md", ROOT / "docs" / "quickstart.md"
PYTHON = ROOT / "docs" / "reference" / "python.md"


def blocks(language: str, page: Path) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def block(language: str, about: str = "") -> str:
    [found] = [one for one in blocks(language, README) if about in one]
    return found


def test_the_assets_run(empty: Folder) -> None:
    (empty.path / "definitions.py").write_text(block("python", "@asset"))
    for day, amounts in {"2025-01-01": [1, 2, 4], "2025-01-02": [8, 16, 32]}.items():
        orders = [
            {"order_id": f"{day}-{amount}", "region": "us" if amount in (4, 32) else "eu", "amount": amount}
            for amount in amounts
        ]
        (empty.path / "landing" / day).mkdir(parents=True)
        (empty.path / "landing" / day / "orders.json").write_text("\n".join(map(json.dumps, orders)))
    assert "3 assets" in empty.ok("check")
    empty.variables |= OWN_JVM  # started in the folder, where its paths begin
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


def test_the_client_asks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with house(tmp_path) as served:
        exec(block("python", "Client(").replace("http://127.0.0.1:8765", served.served.url), {})
    assert capsys.readouterr().out == "SUCCEEDED\n"


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
        nouns = ("asset", "backfill", "ledger", "partition", "run", "schedule", "sensor")
        commands.add(tuple(words[: 2 if words[0] in nouns else 1]))
    assert len(commands) > 5
    for command in sorted(commands):
        assert "Usage: servo" in empty.ok(*command, "--help")


@pytest.mark.parametrize("page", [README, QUICKSTART, PYTHON, ROOT / "ARCHITECTURE.md"], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text())
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []
    files = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", page.read_text())
    assert [file for file in files if not (ROOT / "src" / "servo" / file).exists()] == []


# ── the reference of Python ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def examples(empty: Folder) -> dict[str, Any]:
    """Its examples, which are one file."""
    (empty.path / "definitions.py").write_text("\n\n".join(blocks("python", PYTHON)))
    return runpy.run_path(str(empty.path / "definitions.py"))


def test_the_reference_is_a_project(empty: Folder, examples: dict[str, Any]) -> None:
    assets = sum(isinstance(one, type(examples["orders"])) for one in examples.values())
    checked = empty.json("check")
    assert checked == {"ok": True, "assets": assets, "schedules": 2, "sensors": 4, "problems": []}
    [asked] = examples["delivered"](None)
    assert asked.partitions == ("2025-01-02",)


def test_the_reference_shows_what_python_answers(examples: dict[str, Any]) -> None:
    shown = doctest.DocTestParser().get_doctest("\n".join(blocks("pycon", PYTHON)), examples, PYTHON.name, None, 0)
    assert len(shown.examples) > 5
    assert doctest.DocTestRunner().run(shown).failed == 0


def test_the_reference_asks_what_can_be_answered(folder: Folder) -> None:
    [statements] = blocks("sql", PYTHON)
    with folder.project() as project:
        for statement in statements.split(";")[:-1]:
            project.reader.query(statement, fresh=True)


def test_the_reference_has_everything(examples: dict[str, Any]) -> None:
    said = PYTHON.read_text()
    inside = {"__version__", "Check", "Mapping", "default_mapping", "edges", "mapping_from_json"}
    names = {*servo.__all__, *check.__all__, *mapping.__all__} - inside
    assert [one for one in names if not re.search(rf"[`.]{one}[`(]", said)] == []
    options = {*inspect.signature(servo.asset).parameters, *inspect.get_annotations(type(examples["orders"].spec))}
    context = ("spark", "partition", "partitions", "keys", "window", "run_id", "log", "metadata", "read(name)")
    hidden = {"function", "declared", "source", "dependencies", "first_version"}
    assert [one for one in (*options - hidden, "deps", *context) if f"`{one}`" not in said] == []
    called: list[Callable[..., Any]] = [servo.Daily, servo.Weekly, servo.Monthly, servo.Hourly, servo.Cron]
    called += [servo.Static, servo.Dep, servo.Approval, servo.read, servo.spark_views, servo.testing.materialize]
    called += [mapping.Identity, mapping.Overlap, mapping.Offset, mapping.Lookback, mapping.All, mapping.Last]
    called += [mapping.Explicit, mapping.ByDimension]
    assert [text for one in called if (text := signature(one)) not in said] == []


def signature(called: Callable[..., Any]) -> str:
    """As the reference writes it: `read(asset, partitions=(), *, as_of=None)`."""
    parameters: list[str] = []
    for one in inspect.signature(called).parameters.values():
        if one.kind is one.KEYWORD_ONLY and "*" not in parameters:
            parameters.append("*")
        default = "" if one.default is one.empty else f"={one.default!r}".replace("'", '"')
        parameters.append(f"{one.name}{default}")
    return f"{called.__name__}({', '.join(parameters)})"


def test_the_reference_leads_within_itself() -> None:
    said = PYTHON.read_text()
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", said, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    places = {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings}
    assert set(re.findall(r"\(#([^)]+)\)", said)) <= places
