"""What docs/reference/schedules.md and sensors.md show works, and is what the commands say."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import Folder

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (PAGES / page).read_text(), re.DOTALL | re.MULTILINE)


def shapes(page: str) -> list[dict[str, Any]]:
    return [json.loads(block) for block in blocks(page, "json")]


def project(path: Path, page: str) -> Folder:
    [code] = blocks(page, "python")
    (path / "servo.toml").write_text('namespace = "shop"\n')
    (path / "definitions.py").write_text(code)
    return Folder(path)


@pytest.mark.parametrize("page", ["schedules.md", "sensors.md"])
def test_the_commands_of_the_page_run(tmp_path: Path, page: str) -> None:
    folder = project(tmp_path, page)
    [script] = blocks(page, "sh")
    for line in script.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "servo"
        done = folder.servo(*arguments)
        assert done.returncode == 0, (line, done)


@pytest.mark.parametrize(
    ("page", "noun"), [("schedules.md", "schedule"), ("sensors.md", "sensor")], ids=["schedule", "sensor"]
)
def test_the_page_has_every_verb_and_option(empty: Folder, page: str, noun: str) -> None:
    said = (PAGES / page).read_text()
    verbs = re.findall(r"^  ([a-z-]+)  ", empty.ok(noun, "--help").partition("Commands:")[2], re.MULTILINE)
    assert len(verbs) >= 8
    for verb in verbs:
        assert re.search(rf"^## .*`(servo {noun} )?{verb}\b", said, re.MULTILINE), verb
        options = set(re.findall(r"^  (--[a-z-]+)", empty.ok(noun, verb, "--help"), re.MULTILINE)) - {"--json"}
        assert [option for option in options if option not in said] == [], verb


def test_the_shapes_of_schedules(tmp_path: Path) -> None:
    folder = project(tmp_path, "schedules.md")
    one, ahead, changed, ticked, ticks, passed, conflicts = shapes("schedules.md")
    assert one.keys() == folder.json("schedule", "show", "nightly").keys()
    told = folder.json("schedule", "next", "nightly")
    assert ahead.keys() == told.keys()
    for part in ("ticks", "schedules"):
        assert ahead[part][0].keys() == told[part][0].keys()
    assert ahead["ticks"][0]["fills"][0].keys() == told["ticks"][0]["fills"][0].keys()
    assert changed.keys() == folder.json("schedule", "pause", "nightly").keys()
    assert ticked.keys() == folder.json("schedule", "trigger", "nightly", "--request-id", "today").keys()
    history = folder.json("schedule", "ticks", "nightly")
    assert ticks.keys() == history.keys()
    assert ticks["ticks"][0].keys() == history["ticks"][0].keys()
    assert passed.keys() == folder.json("tick").keys()
    assert conflicts.keys() == folder.json("run", "conflicts").keys()


def test_the_shapes_of_sensors(tmp_path: Path) -> None:
    folder = project(tmp_path, "sensors.md")
    one, evals, accepted, changed, reset = shapes("sensors.md")
    assert accepted.keys() == folder.json("sensor", "send", "uploads", "--data", '{"day": "2025-01-15"}').keys()
    assert one.keys() == folder.json("sensor", "show", "landing").keys()
    history = folder.json("sensor", "evals", "uploads")
    assert evals.keys() == history.keys()
    assert evals["evals"][0].keys() == history["evals"][0].keys()
    assert evals["evals"][0]["runs"][0].keys() == history["evals"][0]["runs"][0].keys()
    assert changed.keys() == folder.json("sensor", "pause", "uploads").keys()
    assert reset.keys() == folder.json("sensor", "reset-cursor", "landing", "--to", "2").keys()
