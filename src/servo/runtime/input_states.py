"""Every input of one partition: what was read of it, what is current, and how the two compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from servo.fold.versions import moment_of_version
from servo.partitions import PartitionKey
from servo.planning.catalog import Catalog
from servo.planning.unread import given_from

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["InputState", "input_states"]


class InputState(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream partition of a partition: what was read of it, what is current now, and how the two compare.

    The state is same (what was read is current), same_content (another materialization with the same content),
    changed, unread (there, given by the mapping, and not read) or missing (given by the mapping, and not there).
    """

    asset_id: str
    asset_key: str
    partition_key: str
    state: str
    given: bool  # whether the mapping of the definitions in force gives it
    read_materialization_id: str | None = None
    read_content_hash: str | None = None
    read_run_id: str | None = None  # the run that had made what was read
    read_made_at: datetime | None = None
    current_materialization_id: str | None = None
    current_content_hash: str | None = None
    current_run_id: str | None = None
    current_made_at: datetime | None = None
    changed_at: datetime | None = None  # since when it makes the reader stale; None if it does not


_SELF = """
    SELECT materialization_id, materialization_version, last_materialization_at, last_materialization_run_id
    FROM partition_status WHERE asset_id = $asset_id AND partition_key = $key AND materialization_version IS NOT NULL
"""
_READ = """
    SELECT lineage.upstream_asset_id, lineage.upstream_partition_key, lineage.upstream_asset_key,
           lineage.upstream_materialization_id, made.content_hash, made.run_id, made.made_at
    FROM lineage LEFT JOIN materializations AS made ON made.materialization_id = lineage.upstream_materialization_id
    WHERE lineage.materialization_id = $id
"""
_OF_SOME = "asset_id = $asset_id AND partition_key IN (SELECT unnest($keys))"
_CURRENT = f"""
    SELECT partition_key, materialization_id, content_hash, last_materialization_run_id, last_materialization_at,
           materialization_version
    FROM partition_status WHERE materialization_version IS NOT NULL AND {_OF_SOME}
"""
_HISTORY = f"""
    SELECT partition_key, materialization_id, content_hash, published_at AS became_at, published_version AS event_id
    FROM materializations WHERE published_at IS NOT NULL AND {_OF_SOME}
    UNION ALL
    SELECT partition_key, materialization_id, content_hash, rolled_back_at, rollback_version
    FROM rollbacks WHERE {_OF_SOME}
"""
_MICROS = 16  # digits at the front of a version (see servo.fold.versions)


class _Read(msgspec.Struct, frozen=True):
    asset_key: str
    materialization_id: str
    content_hash: str | None
    run_id: str | None
    made_at: datetime | None


class _Current(msgspec.Struct, frozen=True):
    materialization_id: str | None
    content_hash: str | None
    run_id: str | None
    made_at: datetime
    version: str


class _Reader(msgspec.Struct, frozen=True):
    materialization_id: str | None
    version: str
    made_at: datetime
    run_id: str | None


def input_states(
    snapshot: Answers, catalog: Catalog, asset_key: str, key: PartitionKey, now: datetime
) -> list[InputState]:
    """The inputs of one partition, those that were read and those that the mappings give, by their keys."""
    spec, asset_id = catalog.spec(asset_key), catalog.asset_id(asset_key)
    made = snapshot.query(_SELF, {"asset_id": asset_id, "key": str(key)}).rows
    reader = _Reader(*made[0]) if made else None
    read: dict[str, dict[str, _Read]] = {}
    if reader is not None and reader.materialization_id is not None:
        for upstream_id, upstream_key, *rest in snapshot.query(_READ, {"id": reader.materialization_id}).rows:
            read.setdefault(upstream_id, {})[upstream_key] = _Read(*rest)
    given: dict[str, set[str]] = {}
    if key in spec.partitions:
        asked = spec.partitions.set_of([key])
        for upstream in catalog.graph.upstream(asset_key):
            mapping = catalog.graph.mapping(upstream, asset_key)
            found = mapping.upstream(asked, catalog.spec(upstream).partitions, now)
            given[catalog.asset_id(upstream)] = {str(one) for one in found}
    states = [
        state
        for upstream_id in dict.fromkeys((*given, *read))
        for state in _of_asset(
            snapshot,
            upstream_id,
            reader,
            read.get(upstream_id, {}),
            given.get(upstream_id, set()),
            upstream=catalog.asset_key(upstream_id),
            given_since=_given_since(catalog, asset_key, upstream_id),
        )
    ]
    return sorted(states, key=lambda one: (one.asset_key, one.partition_key))


def _given_since(catalog: Catalog, asset_key: str, upstream_id: str) -> Callable[[str], datetime | None]:
    upstream = catalog.asset_key(upstream_id)
    return (lambda _: None) if upstream is None else given_from(catalog, asset_key, upstream)


def _of_asset(
    snapshot: Answers,
    upstream_id: str,
    reader: _Reader | None,
    read: dict[str, _Read],
    given: set[str],
    *,
    upstream: str | None,
    given_since: Callable[[str], datetime | None],
) -> Iterator[InputState]:
    keys = sorted({*read, *given})
    asked = {"asset_id": upstream_id, "keys": keys}
    current = {key: _Current(*rest) for key, *rest in snapshot.query(_CURRENT, asked).rows}
    states = {key: _state(read.get(key), current.get(key)) for key in keys}
    odd = [key for key, state in states.items() if state in ("changed", "unread")]
    histories: dict[str, list[tuple[Any, ...]]] = {}
    if odd and reader is not None:
        for key, *entry in snapshot.query(_HISTORY, {"asset_id": upstream_id, "keys": odd}).rows:
            histories.setdefault(key, []).append(tuple(entry))
    for key in keys:
        one, other = read.get(key), current.get(key)
        changed_at = None
        if reader is not None and other is not None and key in given and states[key] in ("changed", "unread"):
            history = _ordered(histories.get(key, []), other)
            changed_at = _changed_at(reader, one, other, history, given_since(key))
        yield InputState(
            asset_id=upstream_id,
            asset_key=upstream or (one.asset_key if one is not None else upstream_id),
            partition_key=key,
            state=states[key],
            given=key in given,
            read_materialization_id=None if one is None else one.materialization_id,
            read_content_hash=None if one is None else one.content_hash,
            read_run_id=None if one is None else one.run_id,
            read_made_at=None if one is None else one.made_at,
            current_materialization_id=None if other is None else other.materialization_id,
            current_content_hash=None if other is None else other.content_hash,
            current_run_id=None if other is None else other.run_id,
            current_made_at=None if other is None else other.made_at,
            changed_at=changed_at,
        )


def _state(read: _Read | None, current: _Current | None) -> str:
    if current is None:
        return "missing"
    if read is None:
        return "unread"
    if read.materialization_id == current.materialization_id:
        return "same"
    same = read.content_hash is not None and read.content_hash == current.content_hash
    return "same_content" if same else "changed"


def _ordered(entries: list[tuple[Any, ...]], current: _Current) -> list[tuple[Any, ...]]:
    """What was current when: (materialization id, content hash, moment), oldest first. Now is among it in any case."""
    became = moment_of_version(current.version)
    known = {*entries, (current.materialization_id, current.content_hash, became, current.version[_MICROS + 1 :])}
    return [entry[:3] for entry in sorted(known, key=lambda entry: (entry[2], entry[3]))]


def _changed_at(
    reader: _Reader, read: _Read | None, current: _Current, history: list[tuple[Any, ...]], given_since: datetime | None
) -> datetime | None:
    """As `servo.fold.staleness` says it for all partitions at once."""
    became = moment_of_version(reader.version)
    if read is None:
        arrived: datetime = history[0][2]
        if current.materialization_id is None or (reader.run_id is None and arrived <= reader.made_at):
            return None
        return max(became, arrived, given_since or arrived)
    same = [
        place
        for place, (made, content, _) in enumerate(history)
        if made == read.materialization_id or (content is not None and content == read.content_hash)
    ]
    after: datetime = history[max(same, default=-1) + 1][2]
    return max(became, after)
