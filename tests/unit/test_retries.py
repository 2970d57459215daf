"""When a task is tried again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from servo.assets.spec import Retry
from servo.controllers.decisions import (
    MOST_LOSSES,
    MOST_SESSIONS_LOST,
    after_loss,
    after_session_loss,
    delay,
    next_attempt,
)

NOW = datetime(2025, 1, 15, 12, tzinfo=UTC)
THREE = Retry(attempts=3, jitter=0)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 30), (2, 60), (3, 120), (100, 900)])
def test_golden_backoff(attempt: int, seconds: int) -> None:
    """The golden vector `retry_backoff_seconds`."""
    assert delay(attempt) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("retry", "attempt", "seconds"),
    [
        (Retry(delay=timedelta(seconds=1), factor=3), 4, 27),
        (Retry(delay=timedelta(seconds=7), factor=1), 1_000_000, 7),
        (Retry(delay=timedelta(0)), 50, 0),
        (Retry(delay=timedelta(seconds=20), cap=timedelta(seconds=5)), 1, 5),
        (Retry(factor=10**15), 2, 900),
        (Retry(delay=timedelta(seconds=30), factor=30), 2, 900),
        (Retry(delay=timedelta(seconds=30), factor=31), 2, 900),
    ],
)
def test_own_backoff(retry: Retry, attempt: int, seconds: int) -> None:
    assert delay(attempt, retry) == timedelta(seconds=seconds)


def test_jitter_is_within_its_percentage_and_never_beyond_the_cap() -> None:
    retry = Retry(jitter=10)
    assert delay(1, retry, fraction=0.5) == timedelta(seconds=31.5)
    assert delay(1, retry, fraction=1.0) == timedelta(seconds=33)
    assert delay(9, retry, fraction=1.0) == timedelta(seconds=810)
    near = Retry(delay=timedelta(seconds=880), jitter=10)
    assert delay(1, near, fraction=1.0) == timedelta(seconds=900)


def test_attempts_are_used_up() -> None:
    waits = [next_attempt(THREE, attempt, retryable=True, now=NOW) for attempt in (1, 2, 3)]
    assert waits == [NOW + timedelta(seconds=30), NOW + timedelta(seconds=60), None]


def test_an_error_that_is_not_retryable_is_the_end() -> None:
    assert next_attempt(THREE, 1, retryable=False, now=NOW) is None


def test_attempts_whose_worker_was_lost_do_not_count() -> None:
    assert next_attempt(THREE, 4, retryable=True, lost_before=2, now=NOW) == NOW + timedelta(seconds=60)
    assert next_attempt(THREE, 5, retryable=True, lost_before=2, now=NOW) is None
    assert next_attempt(Retry(), 2, retryable=True, lost_before=1, now=NOW) is None


def test_a_task_survives_only_so_many_workers() -> None:
    waits = [after_loss(lost, NOW) for lost in range(MOST_LOSSES + 1)]
    assert waits == [NOW, NOW + timedelta(seconds=30), NOW + timedelta(seconds=60), None]


def test_a_task_survives_only_so_many_sessions_and_the_first_loss_costs_no_time() -> None:
    waits = [after_session_loss(lost, NOW) for lost in range(MOST_SESSIONS_LOST + 1)]
    assert waits == [NOW, NOW + timedelta(seconds=10), NOW + timedelta(seconds=20), None]
