"""A cache of stale partitions: an answer that is kept in a file, so that the next one looks only at what is new.

`servo partition sweep` makes it. The file lies beside the projections and can be thrown away like them. It holds, for
every partition that is stale by anything but time or that has a deadline, its reasons; and, for each asset, a
fingerprint of its definition. Judged again are the partitions that newer events are about, those that are given some of
them to read, and all of an asset with another fingerprint or with mappings to which time has brought other windows.
Answers are the same with and without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from servo import canonical, decoders
from servo.errors import ServoError
from servo.fold.partition_rows import EQUAL_CODE, code_classes
from servo.fold.rows import Kind
from servo.fold.staleness import LAW, deadlines_sql, stale_sql
from servo.ids import is_ulid, ulid_time
from servo.ledger.archive import sync_file
from servo.planning.catalog import Catalog
from servo.planning.unread import looks_at_the_time, touched_by
from servo.projections.manifest import FOLD, FileRef, Watermark, is_sealed, seal
from servo.status.staleness_query import ANSWER, StalenessQuery, policy_seconds
from servo.status.state import State

if TYPE_CHECKING:
    import pyarrow as pa

    from servo.projections.workbench import Workbench


# More changes than these are looked at no faster one by one than all together.
_FEW = 20_000
_ABANDONED_SECONDS = 600.0  # after which a file that no pointer names was left behind

# Since when each asset has which code: the moment at which a partition became stale by it follows from all of them.
_CODES = "SELECT asset_id, code_version FROM asset_versions ORDER BY asset_id, deployment_version"
_TIMES = ("invalidated_since", "code_since", "upstream_since", "deadline_at", "freshness_since")
_NO_TIME = "CASE WHEN false THEN asked_at.now_at END"
_JUDGED = f"""
    SELECT asset_id, partition_key, {", ".join(f"max({name}) AS {name}" for name in _TIMES)} FROM (
      SELECT asset_id, partition_key, invalidated_since, code_since, upstream_since, {_NO_TIME} AS deadline_at,
             {_NO_TIME} AS freshness_since FROM judged_reasons CROSS JOIN asked_at
      UNION ALL
      SELECT asset_id, partition_key, {_NO_TIME}, {_NO_TIME}, {_NO_TIME}, deadline_at, freshness_since
      FROM judged_deadlines CROSS JOIN asked_at
    ) GROUP BY asset_id, partition_key
"""
_WITHOUT_DEADLINES = f"""
    SELECT asset_id, partition_key, invalidated_since, code_since, upstream_since, {_NO_TIME} AS deadline_at,
           {_NO_TIME} AS freshness_since FROM ({{reasons}}) AS reasons CROSS JOIN asked_at
"""
_KEPT = """
    SELECT * FROM swept WHERE asset_id IN (SELECT asset_id FROM kept_assets) AND NOT EXISTS (
      SELECT 1 FROM looked_at_again AS again
      WHERE again.asset_id = swept.asset_id AND again.partition_key = swept.partition_key)
"""
_ANSWER = """
    SELECT * FROM (
      SELECT asset_id, partition_key, invalidated_since, code_since, upstream_since,
             CASE WHEN deadline_at <= asked_at.now_at THEN freshness_since END AS freshness_since
      FROM ({swept}) AS swept_now CROSS JOIN asked_at
    ) WHERE coalesce(invalidated_since, code_since, upstream_since, freshness_since) IS NOT NULL
"""


_WRITING = Lock()  # one thread of a process at a time; processes do not get in each other's way


class _Cached(msgspec.Struct, frozen=True, kw_only=True):
    """The pointer to a cached answer: up to which event, when, and by which definitions it was found."""

    watermark: Watermark
    now: datetime
    fold: int
    fingerprints: dict[str, str]  # by asset id
    file: FileRef


def refresh_cache(state: State, mint: Callable[[], str]) -> Watermark:
    """Make the file anew, from the last one where that is quicker; the watermark of the answer. `mint`: new ids."""
    # Arrow and DuckDB come with these imports.
    from servo.projections.draft import row_count, write  # noqa: PLC0415
    from servo.projections.manifest import file_ref  # noqa: PLC0415
    from servo.projections.store import replace_file, storage_explained  # noqa: PLC0415

    watermark, folder, everything = state.snapshot.watermark, _folder(state), list(state.catalog.graph.specs)
    with state.workbench() as bench:
        newer = _newer(bench, state, everything)
        if newer is None:
            _judge(bench, state, everything, only=None, name="judged_whole")
            newer = "SELECT * FROM judged_whole"
        rows = bench.table(f"SELECT * FROM ({newer}) AS swept_now ORDER BY asset_id, partition_key")
        fingerprints = _fingerprints(bench, state.catalog)
    with _WRITING, storage_explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{mint()}.parquet"
        write(rows, path)
        sync_file(path)
        file = file_ref(path, row_count(path))
        cached = _Cached(watermark=watermark, now=state.now, fold=FOLD, fingerprints=fingerprints, file=file)
        before = _pointer(folder)
        if before is not None and before.watermark.position > watermark.position:
            path.unlink()  # another process has looked at more meanwhile
            return before.watermark
        replace_file(folder / "CURRENT", seal(cached))
        # A reader that has just read the pointer finds the file gone, and does without. What another process writes
        # now is left alone; a file that no pointer came to name goes later.
        for other in folder.glob("*.parquet"):
            replaced = before is not None and other.name == before.file.name
            if other != path and (replaced or _is_old(other, state.now)):
                other.unlink(missing_ok=True)
    return watermark


def cached_answer(bench: Workbench, state: State, asset_keys: Sequence[str]) -> bool:
    """Leave the stale partitions of some assets on the bench, as ANSWER; False if there is no cache that fits."""
    newer = _newer(bench, state, asset_keys)
    if newer is not None:
        bench.keep(ANSWER, _ANSWER.format(swept=newer))
    return newer is not None


def _newer(bench: Workbench, state: State, asset_keys: Sequence[str]) -> str | None:
    """A query for what a cache made now would hold for some assets; None if there is no cache to begin with."""
    cached = _current(state)
    table = None if cached is None else _rows(state, cached)
    if cached is None or table is None:
        return None
    changed = bench.spoken_of("partition_status", cached.watermark.event_id or "")
    if len(changed) > _FEW:
        return None
    ids = state.catalog.asset_ids
    whole, some = _looked_at(state, cached, _fingerprints(bench, state.catalog), changed, asset_keys)
    again = [(ids[asset], key) for asset, keys in some.items() for key in keys]
    bench.lay("kept_assets", {"asset_id": Kind.TEXT}, [[ids[key] for key in asset_keys if key not in whole]])
    bench.lay(
        "looked_at_again",
        {"asset_id": Kind.TEXT, "partition_key": Kind.TEXT},
        list(map(list, zip(*again, strict=True))) or [[], []],
    )
    bench.put("swept", table)
    parts = [_KEPT]
    for name, assets, only in (("judged_whole", whole, None), ("judged_some", list(some), some)):
        if assets:
            _judge(bench, state, assets, only=only, name=name)
            parts.append(f"SELECT * FROM {name}")
    if len(parts) == 1:
        StalenessQuery(bench, state.catalog, [], state.now).lay()
    return " UNION ALL ".join(parts)


def _judge(
    bench: Workbench, state: State, asset_keys: Sequence[str], *, only: Mapping[str, Sequence[str]] | None, name: str
) -> None:
    parts = StalenessQuery(bench, state.catalog, asset_keys, state.now, only).lay()
    reasons = stale_sql(msgspec.structs.replace(parts, freshness=False))
    if not parts.freshness:
        bench.keep(name, _WITHOUT_DEADLINES.format(reasons=reasons))
        return
    bench.keep("judged_reasons", reasons)
    bench.keep("judged_deadlines", deadlines_sql(parts))
    bench.keep(name, _JUDGED)


def _looked_at(
    state: State,
    cached: _Cached,
    fingerprints: Mapping[str, str],
    changed: Sequence[tuple[Any, ...]],
    asset_keys: Sequence[str],
) -> tuple[list[str], dict[str, list[str]]]:
    """The assets to judge as a whole, and of the others the partitions to judge."""
    catalog, now = state.catalog, state.now
    keys = {asset_id: key for key, asset_id in catalog.asset_ids.items()}
    whole = {
        key
        for key in asset_keys
        if cached.fingerprints.get(catalog.asset_id(key)) != fingerprints[catalog.asset_id(key)]
        or looks_at_the_time(catalog, key, cached.now, now)
    }
    by_asset: dict[str, list[str]] = {}
    for asset_id, partition_key in changed:
        if asset_id in keys:
            by_asset.setdefault(keys[asset_id], []).append(partition_key)
    some: dict[str, set[str]] = {key: set(found) for key, found in by_asset.items()}
    for asset_key, touched in touched_by(catalog, by_asset, now):
        if touched is None or touched.count > _FEW:
            whole.add(asset_key)
        else:
            some.setdefault(asset_key, set()).update(str(key) for key in touched)
    wanted = set(asset_keys)
    return (
        [key for key in catalog.graph.specs if key in whole and key in wanted],
        {key: sorted(found) for key, found in some.items() if key in wanted and key not in whole},
    )


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _folder(state: State) -> Path:
    return state.snapshot.store.root / "staleness"


def _current(state: State) -> _Cached | None:
    """The cache, if it is of this ledger and older than this state."""
    cached = _pointer(_folder(state))
    if cached is None or cached.fold != FOLD or cached.now > state.now:
        return None
    return cached if state.snapshot.follows(cached.watermark) else None


def _is_old(path: Path, now: datetime) -> bool:
    """Whether its writer would have pointed to it by now."""
    begun = ulid_time(path.stem) if is_ulid(path.stem) else None
    return begun is None or (now - begun).total_seconds() > _ABANDONED_SECONDS


def _pointer(folder: Path) -> _Cached | None:
    try:
        data = (folder / "CURRENT").read_bytes()
        return decoders.decode(data, _Cached) if is_sealed(data) else None
    except (OSError, ValueError):
        return None


def _rows(state: State, cached: _Cached) -> pa.Table | None:
    """The rows of a cache, read once for each version of the projections; None if it is damaged or just replaced."""
    name, table = state.snapshot.recall("staleness_cache") or (None, None)
    if name == cached.file.name:
        return table
    # Arrow comes with these imports.
    from servo.projections.draft import read  # noqa: PLC0415
    from servo.projections.manifest import require_intact  # noqa: PLC0415

    path = _folder(state) / cached.file.name
    with contextlib.suppress(OSError, ServoError):
        require_intact(path, cached.file)
        table = read(path)
        state.snapshot.remember("staleness_cache", (cached.file.name, table), tables=frozenset())
        return table
    return None


def _fingerprints(bench: Workbench, catalog: Catalog) -> dict[str, str]:
    """For each asset, by its id, a hash of everything but rows that its staleness follows from."""
    classes = code_classes(bench.rows(EQUAL_CODE))
    codes: dict[str, list[str | None]] = {}
    for asset_id, code in bench.rows(_CODES):
        stretches = codes.setdefault(asset_id, [])
        if not stretches or stretches[-1] != code:
            stretches.append(code)
    return {
        asset_id: canonical.sha256_hex(
            {
                "law": LAW,
                "code": catalog.spec(key).code_version,  # which may be about to be deployed
                "codes": codes.get(asset_id, []),
                "equal": classes.rows([asset_id]),
                "freshness": policy_seconds(catalog.spec(key)),
                "partitions": _described(catalog, key),
                "reads": [
                    [
                        catalog.asset_id(upstream),
                        catalog.graph.mapping(upstream, key).to_json(),
                        _described(catalog, upstream),
                    ]
                    for upstream in catalog.graph.upstream(key)
                ],
            }
        )
        for key, asset_id in catalog.asset_ids.items()
    }


def _described(catalog: Catalog, asset_key: str) -> list[Any]:
    """The partitions of an asset, with the values that dynamic dimensions have now."""
    return [
        [dimension.to_json(), catalog.dynamic.get(dimension.name, ()) if dimension.kind == "dynamic" else ()]
        for dimension in catalog.spec(asset_key).partitions.dimensions
    ]
