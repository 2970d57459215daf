"""What a partition is called: every combination of data, attempt, order and staleness, ties of time included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import product

import duckdb
import pytest

from servo.events import RecordedEvent
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.model import PartitionsMarked, TaskFinished
from servo.fold import fold
from servo.fold.display import FAILED, MATERIALIZED, Status, display_status, status_sql
from servo.fold.partition_rows import PartitionStatusRow
from servo.fold.rows import by_moment
from tests.support.recording import recorded, said

KEY = "date=d:2025-01-15"
EARLY, LATE = "1736942400000000:01JHM0", "1736942460000000:01JHM1"
# The same moment: what was recorded later is later.
TIED_FIRST, TIED_THEN = "1736942400000000:01JHM0", "1736942400000000:01JHM1"
OUTCOMES = [None, *(one.value for one in Outcome if one is not Outcome.SKIPPED)]

N, F, S, M = (
    Status.NEVER_MATERIALIZED,
    Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED,
    Status.STALE,
    Status.MATERIALIZED,
)
# (data, attempt): which came first. What a failure is called depends on nothing else, and staleness on the rest.
ORDERS = {
    "no data": (None, LATE),
    "attempt before data": (LATE, EARLY),
    "attempt after data": (EARLY, LATE),
    "same event": (EARLY, EARLY),
    "tied, attempt recorded first": (TIED_THEN, TIED_FIRST),
    "tied, data recorded first": (TIED_FIRST, TIED_THEN),
}
NEWER = {"attempt after data", "tied, data recorded first"}


@pytest.fixture(scope="module")
def tell() -> Iterator[Callable[..., Status]]:
    """The status of a row by what SQL says of it; as one expression, and by `display_status`."""
    with duckdb.connect() as connection:

        def status(data: str | None, attempt: str | None, outcome: str | None, *, stale: bool) -> Status:
            row = connection.execute(
                f"SELECT {MATERIALIZED}, coalesce({FAILED}, false), {status_sql(str(stale))} FROM"
                " (SELECT CAST(? AS VARCHAR) AS materialization_version, CAST(? AS VARCHAR) AS attempt_version,"
                " CAST(? AS VARCHAR) AS last_attempt_outcome)",
                [data, attempt, outcome],
            ).fetchone()
            assert row is not None
            made, failed, name = row
            found = display_status(made=made, failed=failed, stale=stale)
            assert found == name
            return found

        yield status


@pytest.mark.parametrize(("order", "outcome", "stale"), list(product(ORDERS, OUTCOMES, [False, True])))
def test_every_combination(tell: Callable[..., Status], order: str, outcome: str | None, stale: bool) -> None:
    data, attempt = ORDERS[order]
    found = tell(data, None if outcome is None else attempt, outcome, stale=stale)
    if order == "no data":
        expected = N
    elif outcome == "FAILED" and order in NEWER:
        expected = F  # beats stale
    else:
        expected = S if stale else M
    assert found is expected


def test_a_failed_retry_never_hides_data(tell: Callable[..., Status]) -> None:
    """Told by events: whatever fails afterwards, the half that speaks of data stays as it was."""

    def finished(outcome: Outcome, attempt: int) -> TaskFinished:
        return TaskFinished(
            run_id="run_1",
            task_key="shop/orders",
            attempt=attempt,
            asset_id="0190a000-0000-7000-8000-000000000001",
            asset_key="shop/orders",
            outcome=outcome,
            partitions=PartitionOutcomes(
                keys=[KEY], outcome=outcome, first_materialization_id="01JHM000000000000000000000", content_hash="abc"
            ),
        )

    made, failed = finished(Outcome.SUCCEEDED, 1), finished(Outcome.FAILED, 2)
    for minutes in (1.0, 0.0):  # later, and at the very same moment
        events = recorded(said(made, 0), said(failed, minutes))
        row = _row(events)
        assert (row.content_hash, row.last_attempt_outcome) == ("abc", "FAILED")
        assert _shown(tell, row) is F
        # The same delivered the other way round.
        assert _row(events[::-1]) == row
    by_hand = PartitionsMarked(
        mark_id="m",
        asset_id=made.asset_id,
        asset_key=made.asset_key,
        mark="MATERIALIZED",
        partitions=PartitionOutcomes(keys=[KEY], first_materialization_id="01JHM000000000000000000009"),
    )
    events = recorded(said(made, 0), said(failed, 1), said(by_hand, 1))
    assert by_moment(events[2]) > by_moment(events[1])
    assert events[2].occurred_at - events[1].occurred_at == timedelta(0)
    assert _shown(tell, _row(events)) is M


def _row(events: list[RecordedEvent]) -> PartitionStatusRow:
    (row,) = fold(events)["partition_status"].values()
    assert isinstance(row, PartitionStatusRow)
    return row


def _shown(tell: Callable[..., Status], row: PartitionStatusRow) -> Status:
    return tell(row.materialization_version, row.attempt_version, row.last_attempt_outcome, stale=False)
