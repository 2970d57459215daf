"""The reasons for which one partition is stale, from its own row and its inputs.

`servo.fold.staleness` says the same of all partitions of an asset at once; whoever asks about one need not wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from servo.answers.partitions import Reason
from servo.answers.why import InputState
from servo.fold.display import is_marked
from servo.fold.versions import moment_of_version
from servo.partitions import PartitionKey
from servo.runtime.code_changes import asset_code, classes_in
from servo.runtime.moments import Moment

__all__ = ["reasons_of"]


def reasons_of(
    moment: Moment, asset_key: str, key: PartitionKey, row: dict[str, Any], inputs: Sequence[InputState]
) -> list[Reason]:
    """In the order of their weight. What has no data, also where it was marked as materialized, is frozen or is not
    defined any more is not stale."""
    spec, version = moment.known.spec(asset_key), row.get("materialization_version")
    if version is None or is_marked(row) or row.get("frozen") or key not in spec.partitions:
        return []
    became = moment_of_version(version)
    found: list[tuple[str, datetime | None]] = [
        ("INVALIDATED", _invalidated(row, version)),
        ("CODE_CHANGED", _code_changed(moment, asset_key, row["last_materialization_code_version"], became)),
        ("UPSTREAM_CHANGED", min((one.changed_at for one in inputs if one.changed_at is not None), default=None)),
        ("FRESHNESS_POLICY", _too_old(spec.freshness, row["last_materialization_at"], moment.now)),
    ]
    return [Reason(code, max(since, became)) for code, since in found if since is not None]


def _invalidated(row: dict[str, Any], version: str) -> datetime | None:
    """When it was declared stale, if that was since it became current or since it was made."""
    at: datetime | None = row["invalidated_at"]
    if at is None:
        return None
    return at if (row["invalidation_version"] or "") > version or at > row["last_materialization_at"] else None


def _code_changed(moment: Moment, asset_key: str, made_with: str | None, became: datetime) -> datetime | None:
    """When the code that it was made with, or that is equal to it, was taken away for good."""
    if made_with is None or made_with == moment.known.spec(asset_key).code_version:
        return None
    classes, code = classes_in(moment.snapshot), asset_code(moment.snapshot, moment.known, asset_key)
    if classes.are_equal(code.asset_id, made_with, code.current):
        return None
    return code.ended_at(made_with, classes) or became


def _too_old(freshness: timedelta | None, made_at: datetime | None, now: datetime) -> datetime | None:
    if freshness is None or made_at is None:
        return None
    deadline = made_at + timedelta(seconds=max(1, int(freshness.total_seconds())))
    return deadline if deadline <= now else None
