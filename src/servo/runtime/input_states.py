"""Every input of one partition: what was read of it, what is current, and how the two compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from servo.answers.why import InputState
from servo.fold.display import MARKED, is_marked
from servo.fold.versions import moment_of_version
from servo.partitions import PartitionKey
from servo.planning.catalog import Catalog
from servo.planning.unread import given_from
from servo.runtime.removed_inputs import Pair, removed_since

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["input_states"]


_SELF = """
    SELECT materialization_id, materialization_version, last_materialization_at, last_materialization_run_id,
           last_materialization_code_version, content_hash
    FROM partition_status WHERE asset_id = $asset_id AND partition_key = $key AND materialization_version IS NOT NULL
"""
_READ = """
    SELECT upstream_asset_id, upstream_partition_key, upstream_asset_key, upstream_materialization_id
    FROM lineage WHERE asset_id = $asset_id AND partition_key = $key AND materialization_id = $id
"""
# The first and the last key, as plain values, let most of a file be passed over.
_OF_SOME = """
    asset_id = $asset_id AND partition_key >= $first AND partition_key <= $last
    AND partition_key IN (SELECT unnest($keys))
"""
_CURRENT = f"""
    SELECT partition_key, materialization_id, content_hash, last_materialization_run_id, last_materialization_at,
           materialization_version, {MARKED} AS marked
    FROM partition_status WHERE materialization_version IS NOT NULL AND {_OF_SOME}
"""
_MADE = f"""
    SELECT partition_key, materialization_id, content_hash, run_id, made_at,
           run_id IS NULL AND code_version IS NULL AND content_hash IS NULL AS marked, published_at, published_version
    FROM materializations WHERE {_OF_SOME}
      AND (partition_key IN (SELECT unnest($changed)) OR materialization_id IN (SELECT unnest($ids)))
"""
_ROLLED_BACK = f"""
    SELECT partition_key, materialization_id, content_hash, rolled_back_at, rollback_version
    FROM rollbacks WHERE {_OF_SOME}
"""
_MICROS = 16  # digits at the front of a version (see servo.fold.versions)


class _Read(msgspec.Struct, frozen=True):
    asset_key: str
    materialization_id: str
    content_hash: str | None = None
    run_id: str | None = None
    made_at: datetime | None = None


class _Current(msgspec.Struct, frozen=True):
    materialization_id: str | None
    content_hash: str | None
    run_id: str | None
    made_at: datetime
    version: str
    marked: bool


class _Reader(msgspec.Struct, frozen=True):
    materialization_id: str | None
    version: str
    made_at: datetime
    run_id: str | None
    marked: bool


def input_states(
    snapshot: Answers,
    catalog: Catalog,
    asset_key: str,
    key: PartitionKey,
    now: datetime,
    *,
    row: Mapping[str, Any] | None = None,
) -> list[InputState]:
    """The inputs of one partition, those that were read and those that the mappings give, by their keys.

    `row`: what its status says, of those who know that already.
    """
    spec = catalog.spec(asset_key)
    own = {"asset_id": catalog.asset_id(asset_key), "key": str(key)}
    rows = snapshot.query(_SELF, own).dicts() if row is None else [row]
    reader = _reader(rows[0]) if rows else None
    read: dict[str, dict[str, _Read]] = {}
    if reader is not None and reader.materialization_id is not None:
        for upstream_id, upstream_key, *rest in snapshot.query(_READ, {**own, "id": reader.materialization_id}).rows:
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
    if reader is not None and not reader.marked and key in spec.partitions:
        states = _with_removed(snapshot, own["asset_id"], str(key), states, reader, now)
    return sorted(states, key=lambda one: (one.asset_key, one.partition_key))


def _with_removed(  # noqa: PLR0917 (one partition, and what is known of it)
    snapshot: Answers, asset_id: str, key: str, states: list[InputState], reader: _Reader, now: datetime
) -> list[InputState]:
    """The same, with what was read and is not given any more told as removed, since when."""
    pairs = {
        Pair(asset_id, key, one.asset_id, one.partition_key): place
        for place, one in enumerate(states)
        if not one.given and one.read_materialization_id is not None
    }
    if not pairs:
        return states
    became = moment_of_version(reader.version)
    for pair, since in removed_since(lambda sql: snapshot.query(sql).rows, pairs, now).items():
        place = pairs[pair]
        states[place] = msgspec.structs.replace(states[place], state="removed", changed_at=max(became, since))
    return states


def _reader(row: Mapping[str, Any]) -> _Reader | None:
    if row.get("materialization_version") is None:
        return None
    return _Reader(
        row["materialization_id"],
        row["materialization_version"],
        row["last_materialization_at"],
        row["last_materialization_run_id"],
        is_marked(row),
    )


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
    if not keys:
        return
    current = {key: _Current(*rest) for key, *rest in snapshot.query(_CURRENT, _some(upstream_id, keys)).rows}
    read, histories = _histories(snapshot, upstream_id, read, current)
    states = {key: _state(read.get(key), current.get(key)) for key in keys}
    for key in keys:
        one, other = read.get(key), current.get(key)
        changed_at = None
        differs = key in given and states[key] in ("changed", "unread")
        if differs and other is not None and reader is not None and not reader.marked:
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


def _histories(
    snapshot: Answers, upstream_id: str, read: dict[str, _Read], current: dict[str, _Current]
) -> tuple[dict[str, _Read], dict[str, list[tuple[Any, ...]]]]:
    """What was read, with what is known of it; and what was ever current of inputs that may have changed since."""
    changed = sorted(
        key for key, one in current.items() if key not in read or read[key].materialization_id != one.materialization_id
    )
    asked = sorted({*read, *changed})
    if not asked:
        return read, {}
    ids = [one.materialization_id for one in read.values()]
    made = {**_some(upstream_id, asked), "changed": changed, "ids": ids}
    known: dict[str, tuple[Any, ...]] = {}
    histories: dict[str, list[tuple[Any, ...]]] = {}
    marks: set[str] = set()
    for key, materialization_id, content_hash, run_id, made_at, marked, *published in snapshot.query(_MADE, made).rows:
        known[materialization_id] = (content_hash, run_id, made_at)
        if marked:
            marks.add(materialization_id)
        elif published[0] is not None:
            histories.setdefault(key, []).append((materialization_id, content_hash, *published))
    for key, *entry in snapshot.query(_ROLLED_BACK, _some(upstream_id, changed)).rows if changed else ():
        if entry[0] not in marks:
            histories.setdefault(key, []).append(tuple(entry))
    found = {
        key: _Read(one.asset_key, one.materialization_id, *known.get(one.materialization_id, ()))
        for key, one in read.items()
    }
    return found, histories


def _some(asset_id: str, keys: list[str]) -> dict[str, Any]:
    """The parameters of `_OF_SOME`, for keys in order."""
    return {"asset_id": asset_id, "first": keys[0], "last": keys[-1], "keys": keys}


def _state(read: _Read | None, current: _Current | None) -> str:
    if current is None:
        return "missing"
    if read is not None and read.materialization_id == current.materialization_id:
        return "same"
    if current.marked:
        return "marked"
    if read is None:
        return "unread"
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
