"""States have one name each, in Python, in SQL and in what is recorded."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import pytest

import servo
from servo.events import lifecycles
from servo.events.columns import Outcome
from servo.events.lifecycles import ChunkStatus, RunStatus, TaskStatus, in_sql

LIFECYCLES = [kind for name in lifecycles.__all__ if isinstance(kind := getattr(lifecycles, name), type)]
BARE = re.compile(r"\b(state|status|decision|last_attempt_outcome)\s*(=|<>|(NOT )?IN\s*\()\s*'[A-Z_]+'")


@pytest.mark.parametrize("kind", LIFECYCLES)
def test_a_state_is_recorded_by_its_name(kind: type[StrEnum]) -> None:
    assert [state.value for state in kind] == [state.name for state in kind]


def test_how_tasks_end_is_how_runs_and_chunks_end() -> None:
    ends = {outcome.value for outcome in Outcome} - {Outcome.STAGED}
    assert {state.value for state in TaskStatus if state.ended} == ends
    assert {state.value for state in RunStatus if state.ended} == ends - {Outcome.SKIPPED}
    assert ends - {Outcome.SKIPPED} < {state.value for state in ChunkStatus}


def test_states_are_a_list_in_sql() -> None:
    assert in_sql({TaskStatus.RUNNING, TaskStatus.PLANNED}) == "('PLANNED', 'RUNNING')"


def test_no_sql_names_a_state_by_itself() -> None:
    """A metric once counted a state that nothing writes, because the SQL had it as a text of its own."""
    files = Path(servo.__file__).parent.rglob("*.py")
    assert [f"{file.name}: {found[0]}" for file in files if (found := BARE.search(file.read_text()))] == []
