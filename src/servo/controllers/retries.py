"""When to try again. Pure: the moment and the random fraction are handed in."""

from __future__ import annotations

from datetime import datetime, timedelta

from servo.assets.spec import Retry

MOST_LOSSES = 3
"""So many lost workers a task survives: one that kills each worker it is given must not be given all of them."""

MOST_TROUBLES = 3
"""So often a task that could not begin is handed back without a word against it."""

MOST_SESSIONS_LOST = 3
"""So many lost Spark sessions a task survives: one that takes too much memory must not end them for ever."""

_ONCE = Retry(attempts=1)
_TROUBLE = Retry(delay=timedelta(seconds=10))


def delay(attempt: int, retry: Retry = _ONCE, *, fraction: float = 0.0) -> timedelta:
    """How long to wait after the n-th failure: `delay · factor^(n-1)`, at most the cap.

    The jitter spreads tasks that failed together; `fraction` (0 to 1) says how much of it to use. It is added, and
    where the wait is at its cap taken off, so that the cap holds and those that reached it are spread as well.
    """
    plain = retry.delay
    for _ in range(attempt - 1):
        if not plain or retry.factor == 1:
            break
        if retry.cap // plain < retry.factor:
            plain = retry.cap
            break
        plain *= retry.factor
    plain = min(plain, retry.cap)
    spread = plain * retry.jitter * fraction / 100
    return plain - spread if plain == retry.cap else min(plain + spread, retry.cap)


def next_attempt(
    retry: Retry, attempt: int, *, retryable: bool, lost_before: int = 0, now: datetime, fraction: float = 0.0
) -> datetime | None:
    """When to try again after attempt number `attempt` failed, or None if that is the end of it.

    `lost_before`: earlier attempts that ended with their worker and not by the asset's fault; they do not count.
    """
    made = attempt - lost_before
    if not retryable or made >= retry.attempts:
        return None
    return now + delay(made, retry, fraction=fraction)


def after_trouble(spared_before: int, now: datetime) -> datetime | None:
    """When to try again what could not even begin, because of what passes by itself: Spark or the ledger is away.

    None once a task has been spared so often that what stands against it may well be its own, or for good.
    """
    return None if spared_before >= MOST_TROUBLES else now + delay(spared_before + 1, _TROUBLE)


def after_session_loss(lost_before: int, now: datetime) -> datetime | None:
    """When to try again after the Spark session was lost: the first time at once, then after a while.

    None once so many were lost at this task that it is the likely reason.
    """
    if lost_before >= MOST_SESSIONS_LOST:
        return None
    return now if lost_before == 0 else now + delay(lost_before, _TROUBLE)


def after_loss(lost_before: int, now: datetime) -> datetime | None:
    """When to try again after a worker was lost: the first time at once, then as after failures."""
    if lost_before >= MOST_LOSSES:
        return None
    return now if lost_before == 0 else now + delay(lost_before)
