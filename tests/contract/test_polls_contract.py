"""What is kept of polls beside the ledger, on memory, SQLite and PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path

import pytest

from servo.ledger.protocol import Workspace
from servo.ledger.side_tables import MemoryPolls, Poll, Polls, open_polls
from tests.contract.support import NOW, WORKSPACE

pytest_plugins = ("tests.contract.fixtures",)

LATER, LAST = NOW + timedelta(seconds=1, microseconds=1), NOW + timedelta(hours=2)
Open = Callable[[Workspace], Polls]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens those of one ledger and a workspace, as often as it is called."""
    with ExitStack() as stack:
        if request.param == "memory":
            held: dict[Workspace, MemoryPolls] = {}
            yield lambda workspace: held.setdefault(workspace, MemoryPolls())
            return
        address = f"sqlite:{tmp_path / 'ledger.db'}"
        if request.param == "postgres":
            address = request.getfixturevalue("new_database")()
        yield lambda workspace: stack.enter_context(closing(open_polls(address, workspace)))


def test_a_poll_is_taken_by_one_who_knows_when_the_last_one_was(opened: Open) -> None:
    one, two = opened(WORKSPACE), opened(WORKSPACE)
    assert one.all() == {}
    assert one.begin("s", NOW, None)
    assert not two.begin("s", LATER, None)
    assert not two.begin("s", LATER, LATER)
    assert two.begin("s", LATER, NOW)
    assert one.begin("other", NOW, LAST)  # what was known of it is lost: somebody begins anew
    assert one.all() == {"s": Poll(asked_at=LATER), "other": Poll(asked_at=NOW)}


def test_of_many_at_once_one_asks(opened: Open) -> None:
    polls = opened(WORKSPACE)
    polls.begin("s", NOW, None)
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda _: opened(WORKSPACE).begin("s", LATER, NOW), range(16)))
    assert won.count(True) == 1


def test_what_found_nothing_is_counted_since_the_last_that_was_recorded(opened: Open) -> None:
    polls = opened(WORKSPACE)
    polls.begin("s", NOW, None)
    polls.count("s", NOW, recorded_at=None, reason="nothing ☃")
    polls.count("s", LATER, recorded_at=None, reason=None)
    found = opened(WORKSPACE).all()["s"]
    assert found == Poll(asked_at=LATER, quiet=2, quiet_since=NOW)
    assert found.quiet_after(None)
    assert not found.quiet_after(NOW)
    polls.count("s", LAST, recorded_at=LATER, reason="a\0b\ud800")
    found = polls.all()["s"]
    assert found == Poll(asked_at=LAST, recorded_at=LATER, quiet=1, quiet_since=LAST, reason="a")
    polls.begin("s", LAST + timedelta(seconds=1), LAST)
    assert (polls.all()["s"].quiet, polls.all()["s"].asked_at) == (1, LAST + timedelta(seconds=1))


def test_workspaces_do_not_see_each_other(opened: Open) -> None:
    mine, other = opened(WORKSPACE), opened(Workspace(WORKSPACE.tenant, "elsewhere"))
    mine.count("s", NOW, recorded_at=None, reason=None)
    assert other.all() == {}
    assert other.begin("s", NOW, None)


def test_to_look_makes_nothing(tmp_path: Path) -> None:
    assert open_polls(f"sqlite:{tmp_path / 'ledger.db'}", WORKSPACE).all() == {}
    assert list(tmp_path.iterdir()) == []
