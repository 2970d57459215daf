"""How long a partition takes: the latest samples count most."""

from __future__ import annotations

import pytest

from servo.operations.backfills.records import ALPHA, SAMPLES, weighted_mean


def test_the_latest_counts_most() -> None:
    assert (ALPHA, SAMPLES) == (0.3, 3)
    assert weighted_mean([]) is None
    assert weighted_mean([10.0]) == 10.0
    assert weighted_mean([10.0, 20.0]) == pytest.approx(13.0)
    assert weighted_mean([10.0, 20.0, 30.0]) == pytest.approx(18.1)
    assert weighted_mean([30.0, 20.0, 10.0]) == pytest.approx(21.9)


def test_what_is_long_ago_has_no_weight() -> None:
    assert weighted_mean([1e6, *[2.0] * 100]) == pytest.approx(2.0)
