"""Which partitions are stale, as SQL: plain text that DuckDB and Spark SQL both run.

It reads the tables of the projections, and relations that the caller puts beside them, since they follow from
definitions and the time and not from rows (`RELATIONS`). Names and values of users are in relations, never in the text.

A partition that was materialized, that its definition has and that is neither frozen nor only marked as materialized
is stale by any of these:

    invalidated_since  it was invalidated after it was made or became current
    code_since         the code in force is another than the one it was made with, and not declared equal to it
    upstream_since     an input that it is given has other content than what was read, or was not read at all; or it
                       read one that it is not given any more
    freshness_since    the deadline of its policy has passed

Each is the moment from which it held without a break, and not before this materialization became current. A mark is no
data: one that stands in place of an input makes nobody stale, and what replaces it is what arrives.
"""

from __future__ import annotations

import msgspec

from servo.fold.display import marked_sql
from servo.fold.rows import Kind

# Raised whenever the same rows are judged in another way, so that no cached answer of before is used.
LAW = 2

# By weight: the first that holds is the one that is named.
REASONS = ("INVALIDATED", "CODE_CHANGED", "UPSTREAM_CHANGED", "FRESHNESS_POLICY")
COLUMNS = ("invalidated_since", "code_since", "upstream_since", "freshness_since")

RELATIONS: dict[str, dict[str, Kind]] = {
    # One row: the moment that is asked about, and that from which versions count.
    "asked_at": {"now_at": Kind.TIME, "epoch_at": Kind.TIME},
    # The assets to judge, as defined; of equal versions of code the one that stands for them.
    "judged_assets": {"asset_id": Kind.TEXT, "code_version": Kind.TEXT, "freshness_seconds": Kind.INTEGER},
    # Versions of their code that are equal to others, each with the one that stands for all of these.
    "code_classes": {"asset_id": Kind.TEXT, "code_version": Kind.TEXT, "same_as": Kind.TEXT},
    # The partitions to judge, if not all of these assets.
    "judged_partitions": {"asset_id": Kind.TEXT, "partition_key": Kind.TEXT},
    # Partitions that no definition in force has any more.
    "outside_partitions": {"asset_id": Kind.TEXT, "partition_key": Kind.TEXT},
    # Assets whose partitions read the upstream partition of the same key.
    "same_key_inputs": {"asset_id": Kind.TEXT, "upstream_asset_id": Kind.TEXT},
    # What every partition of an asset reads.
    "shared_inputs": {
        "asset_id": Kind.TEXT,
        "upstream_asset_id": Kind.TEXT,
        "upstream_partition_key": Kind.TEXT,
        "given_from": Kind.TIME,
    },
    # What groups of partitions read, and which group a partition is of.
    "group_inputs": {
        "group_id": Kind.INTEGER,
        "upstream_asset_id": Kind.TEXT,
        "upstream_partition_key": Kind.TEXT,
        "given_from": Kind.TIME,
    },
    "input_groups": {"group_id": Kind.INTEGER, "asset_id": Kind.TEXT, "partition_key": Kind.TEXT},
    # Assets that may have read what they are not given any more.
    "doubtful_readers": {"asset_id": Kind.TEXT},
    # Inputs that were read and are not given any more: who read them, and since when they are not.
    "removed_inputs": {
        "asset_id": Kind.TEXT,
        "partition_key": Kind.TEXT,
        "upstream_asset_id": Kind.TEXT,
        "upstream_partition_key": Kind.TEXT,
        "removed_at": Kind.TIME,
    },
}

# What a few partitions are judged by: these columns of the large tables, of the rows of these partitions and their
# inputs alone. Where `Parts.some` holds they are relations, named `near_` and the table.
NEAR = {
    "partition_status": (
        "asset_id", "partition_key", "materialization_id", "content_hash", "materialization_version",
        "last_materialization_at", "last_materialization_run_id", "last_materialization_code_version",
        "invalidation_version", "invalidated_at", "frozen",
    ),
    "lineage": (
        "materialization_id", "upstream_asset_id", "upstream_partition_key", "upstream_asset_key",
        "upstream_materialization_id",
    ),
    "materializations": (
        "materialization_id", "asset_id", "partition_key", "run_id", "code_version", "content_hash", "made_at",
        "published_at", "published_version",
    ),
}  # fmt: skip

_DAY, _SECOND = 86_400_000_000, 1_000_000
_NO_TIME = "CASE WHEN false THEN asked_at.now_at END"  # a null that both engines take for a time


def reason_sql(prefix: str = "") -> str:
    """The code of the first reason that holds, of a row with COLUMNS."""
    cases = (f"WHEN {prefix}{name} IS NOT NULL THEN '{code}'" for name, code in zip(COLUMNS, REASONS, strict=True))
    return f"CASE {' '.join(cases)} END"


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the relations have anything in them: what is left out costs nothing."""

    same_key: bool = True
    shared: bool = True
    grouped: bool = True
    outside: bool = True
    removed: bool = False
    # Only the partitions of `judged_partitions`, with the relations of `NEAR` in place of the tables, and with
    # `judged`, `odd_pairs` and `changed_inputs` as relations of their own: to plan one query of it all takes longer
    # than to run it in steps.
    some: bool = False
    odd: bool = True
    freshness: bool = True
    equal_code: bool = True
    frozen: bool = False  # judge frozen partitions too, as if they were thawed

    def table(self, name: str) -> str:
        return f"near_{name}" if self.some else name

    @property
    def inputs(self) -> bool:
        return self.same_key or self.shared or self.grouped

    @property
    def changes(self) -> bool:
        """Whether any input may make a partition stale."""
        return (self.inputs and self.odd) or self.removed


def stale_sql(parts: Parts) -> str:
    """The stale partitions: asset_id, partition_key and a moment or null for each reason, in the order of REASONS."""
    return _query(
        [
            *_begun(parts),
            *([] if parts.some else _changes(parts)),
            ("own_reasons", _own(parts)),
            ("code_places", _code_places(parts)),
            ("code_ends", _CODE_ENDS),
            ("every_reason", _every(parts)),
        ],
        _RESULT,
    )


def odd_pairs_sql(parts: Parts) -> str:
    """Partitions with inputs that are not what was read: to be kept as `odd_pairs`. Only these need materializations,
    of the inputs that ODD_INPUTS gives then."""
    return _query([("pairs", _pairs(parts))], _ODD_PAIRS.format(lineage=parts.table("lineage")))


def changed_inputs_sql(parts: Parts) -> str:
    """Inputs that make a partition stale, each with since when: to be kept as `changed_inputs`."""
    *steps, (_, last) = _changes(parts)
    return _query(steps, last)


def changes_sql() -> str:
    """Each input that makes a partition stale, with since when: of `changed_inputs`, as it is kept."""
    since = f"min(greatest(since, {moment_sql('current_version')}))"
    return (
        f"SELECT upstream_asset_id, upstream_partition_key, {since} FROM changed_inputs CROSS JOIN asked_at"
        " GROUP BY upstream_asset_id, upstream_partition_key"
    )


def input_state_sql() -> str:
    """The state of an input for a partition that is given it or read it, of a row with what was read (read_id,
    read_hash) and what is current of it (current_version, current_id, current_hash, input_marked)."""
    return f"""CASE WHEN current_version IS NULL THEN 'missing' WHEN read_id = current_id THEN 'same'
      WHEN input_marked THEN 'marked' WHEN read_id IS NULL THEN 'unread'
      WHEN {_OTHER_CONTENT} THEN 'changed' ELSE 'same_content' END"""


def not_given_sql(parts: Parts) -> str:
    """What partitions of `doubtful_readers` were made from and are not given now, by two pairs of asset_id and
    partition_key. Which of that was removed, `removed_inputs` says."""
    given = (
        " WHERE NOT EXISTS (SELECT 1 FROM pairs WHERE pairs.asset_id = judged.asset_id"
        " AND pairs.partition_key = judged.partition_key AND pairs.upstream_asset_id = lineage.upstream_asset_id"
        " AND pairs.upstream_partition_key = lineage.upstream_partition_key)"
    )
    return _query(
        [*_begun(parts), *([("pairs", _pairs(parts))] if parts.inputs else [])],
        "SELECT judged.asset_id, judged.partition_key, lineage.upstream_asset_id, lineage.upstream_partition_key"
        " FROM judged JOIN doubtful_readers ON doubtful_readers.asset_id = judged.asset_id"
        f" JOIN {parts.table('lineage')} AS lineage ON lineage.materialization_id = judged.materialization_id"
        f"{given if parts.inputs else ''}",
    )


ODD_INPUTS = "SELECT DISTINCT upstream_asset_id, upstream_partition_key FROM odd_pairs"


def deadlines_sql(parts: Parts) -> str:
    """When each partition with a policy is due, and since when it is stale once it is: deadline_at, freshness_since."""
    since = f"greatest({_deadline()}, {moment_sql('judged.current_version')})"
    return _query(
        _begun(parts),
        f"SELECT judged.asset_id, judged.partition_key, {_deadline()} AS deadline_at, {since}"
        " AS freshness_since FROM judged CROSS JOIN asked_at WHERE judged.freshness_seconds IS NOT NULL",
    )


def edges_sql(parts: Parts) -> str:
    """Edges of lineage among partitions that are judged and given: two pairs of asset_id and partition_key."""
    return _query(
        [*_begun(parts), ("pairs", _pairs(parts))],
        "SELECT DISTINCT pairs.asset_id, pairs.partition_key, pairs.upstream_asset_id, pairs.upstream_partition_key,"
        f" pairs.current_version FROM pairs JOIN {parts.table('lineage')} AS lineage"
        " ON lineage.materialization_id = pairs.materialization_id"
        " AND lineage.upstream_asset_id = pairs.upstream_asset_id"
        " AND lineage.upstream_partition_key = pairs.upstream_partition_key",
    )


def _query(steps: list[tuple[str, str]], last: str) -> str:
    return ("WITH " + ",\n".join(f"{name} AS ({sql})" for name, sql in steps) if steps else "") + f"\n{last}"


def _begun(parts: Parts) -> list[tuple[str, str]]:
    """Where every query begins, unless it is kept already."""
    return [] if parts.some else [("judged", judged_sql(parts))]


def judged_sql(parts: Parts) -> str:
    """The partitions that can be stale at all; those who judge in steps keep them as `judged`."""
    some = (
        " AND EXISTS (SELECT 1 FROM judged_partitions AS one WHERE one.asset_id = status.asset_id"
        " AND one.partition_key = status.partition_key)"
    )
    return f"""
    SELECT status.asset_id, status.partition_key, status.materialization_id,
           status.materialization_version AS current_version, status.last_materialization_at AS made_at,
           status.last_materialization_run_id AS run_id,
           {_code("status.last_materialization_code_version", parts)} AS made_with,
           status.invalidation_version, status.invalidated_at, asset.code_version, asset.freshness_seconds
    FROM {parts.table("partition_status")} AS status JOIN judged_assets AS asset ON asset.asset_id = status.asset_id
    {_classes("status", "last_materialization_code_version", parts)}
    WHERE status.materialization_version IS NOT NULL AND NOT ({marked_sql("status")})
    {"" if parts.frozen else "AND NOT coalesce(status.frozen, false)"}
    {_inside("status") if parts.outside else ""}{some if parts.some else ""}"""


def _code(version: str, parts: Parts) -> str:
    """A version of code, or the one that stands for all that are equal to it."""
    return f"coalesce(equal.same_as, {version})" if parts.equal_code else version


def _classes(name: str, version: str, parts: Parts) -> str:
    if not parts.equal_code:
        return ""
    return (
        f"LEFT JOIN code_classes AS equal ON equal.asset_id = {name}.asset_id AND equal.code_version = {name}.{version}"
    )


def _inside(name: str) -> str:
    return (
        f" AND NOT EXISTS (SELECT 1 FROM outside_partitions AS gone WHERE gone.asset_id = {name}.asset_id"
        f" AND gone.partition_key = {name}.partition_key)"
    )


# ── what the inputs say ──────────────────────────────────────────────────────────────────────────────────────────

_PAIR = f"""
    judged.asset_id, judged.partition_key, judged.materialization_id, judged.current_version, judged.made_at,
    judged.run_id, input.asset_id AS upstream_asset_id, input.partition_key AS upstream_partition_key,
    input.materialization_id AS current_id, input.content_hash AS current_hash,
    {marked_sql("input")} AS input_marked"""
_THERE = "input.materialization_version IS NOT NULL"


def _pairs(parts: Parts) -> str:
    """Every judged partition with every input that it is given and that is there."""
    inside = _inside("input") if parts.outside else ""
    status = parts.table("partition_status")
    found = []
    if parts.same_key:
        found.append(f"""
    SELECT {_PAIR}, {_NO_TIME} AS given_from
    FROM judged JOIN same_key_inputs AS given ON given.asset_id = judged.asset_id
    JOIN {status} AS input
      ON input.asset_id = given.upstream_asset_id AND input.partition_key = judged.partition_key
    CROSS JOIN asked_at
    WHERE {_THERE}{inside}""")
    if parts.shared:
        found.append(f"""
    SELECT {_PAIR}, given.given_from
    FROM judged JOIN shared_inputs AS given ON given.asset_id = judged.asset_id
    JOIN {status} AS input
      ON input.asset_id = given.upstream_asset_id AND input.partition_key = given.upstream_partition_key
    WHERE {_THERE}""")
    if parts.grouped:
        found.append(f"""
    SELECT {_PAIR}, given.given_from
    FROM judged JOIN input_groups AS place
      ON place.asset_id = judged.asset_id AND place.partition_key = judged.partition_key
    JOIN group_inputs AS given ON given.group_id = place.group_id
    JOIN {status} AS input
      ON input.asset_id = given.upstream_asset_id AND input.partition_key = given.upstream_partition_key
    WHERE {_THERE}""")
    return " UNION ALL ".join(found)


def _changes(parts: Parts) -> list[tuple[str, str]]:
    """The steps to `changed_inputs`."""
    if not parts.changes:
        return []
    lineage, materializations = parts.table("lineage"), parts.table("materializations")
    steps, found = [], []
    if parts.inputs and parts.odd:
        pairs = [("pairs", _pairs(parts)), ("odd_pairs", _ODD_PAIRS.format(lineage=lineage))]
        steps = [
            *([] if parts.some else pairs),
            ("looked_up", _LOOKED_UP.format(lineage=lineage, materializations=materializations)),
            ("different", _DIFFERENT),
            ("sources", _SOURCES),
            ("history", _history(parts)),
            ("history_places", _HISTORY_PLACES),
        ]
        found.append(_CHANGED)
    if parts.removed:
        found.append(_REMOVED)
    return [*steps, ("changed_inputs", " UNION ALL ".join(found))]


# What was read and is current still is by far the most, and goes first.
_ODD_PAIRS = """
    SELECT * FROM pairs WHERE NOT input_marked AND NOT EXISTS (SELECT 1 FROM {lineage} AS made_from
      WHERE made_from.materialization_id = pairs.materialization_id
        AND made_from.upstream_materialization_id = pairs.current_id)"""
_LOOKED_UP = """
    SELECT odd_pairs.*, made_from.upstream_materialization_id AS read_id, made.content_hash AS read_hash
    FROM odd_pairs LEFT JOIN {lineage} AS made_from ON made_from.materialization_id = odd_pairs.materialization_id
      AND made_from.upstream_asset_id = odd_pairs.upstream_asset_id
      AND made_from.upstream_partition_key = odd_pairs.upstream_partition_key
    LEFT JOIN {materializations} AS made ON made.materialization_id = made_from.upstream_materialization_id"""
# A hash that nobody took is like no other.
_OTHER_CONTENT = "read_hash IS NULL OR current_hash IS NULL OR read_hash <> current_hash"
_DIFFERENT = f"""
    SELECT * FROM looked_up WHERE CASE WHEN read_id IS NULL THEN current_id IS NOT NULL ELSE {_OTHER_CONTENT} END"""
_SOURCES = """
    SELECT DISTINCT upstream_asset_id AS asset_id, upstream_partition_key AS partition_key FROM different"""
_HISTORY_PLACES = """
    SELECT history.*,
           row_number() OVER (PARTITION BY asset_id, partition_key ORDER BY became_at, event_id) AS place
    FROM history"""


def moment_sql(version: str) -> str:
    """The moment at the front of a version (see servo.fold.rows), by arithmetic that both engines have."""
    micros = f"CAST(substr({version}, 1, 16) AS BIGINT)"
    return (
        f"(asked_at.epoch_at + INTERVAL '1' DAY * CAST(({micros} - {micros} % {_DAY}) / {_DAY} AS INT)"
        f" + INTERVAL '1' SECOND * CAST(({micros} % {_DAY} - {micros} % {_SECOND}) / {_SECOND} AS INT)"
        f" + INTERVAL '0.000001' SECOND * CAST({micros} % {_SECOND} AS INT))"
    )


# Of a row of `materializations`: whether it is none, but a mark.
_MARK = "made.run_id IS NULL AND made.code_version IS NULL AND made.content_hash IS NULL"


def _history(parts: Parts) -> str:
    """What was current when: published, or rolled back to, without marks. What is current now is always among it."""
    materializations = parts.table("materializations")
    return f"""
    SELECT made.asset_id, made.partition_key, made.materialization_id, made.content_hash,
           made.published_at AS became_at, made.published_version AS event_id
    FROM {materializations} AS made
    JOIN sources ON sources.asset_id = made.asset_id AND sources.partition_key = made.partition_key
    WHERE made.published_at IS NOT NULL AND NOT ({_MARK})
    UNION
    SELECT back.asset_id, back.partition_key, back.materialization_id, back.content_hash,
           back.rolled_back_at, back.rollback_version
    FROM rollbacks AS back
    JOIN sources ON sources.asset_id = back.asset_id AND sources.partition_key = back.partition_key
    WHERE NOT EXISTS (SELECT 1 FROM {materializations} AS made
      WHERE made.materialization_id = back.materialization_id AND {_MARK})
    UNION
    SELECT now.asset_id, now.partition_key, now.materialization_id, now.content_hash,
           {moment_sql("now.materialization_version")}, substr(now.materialization_version, 18)
    FROM {parts.table("partition_status")} AS now CROSS JOIN asked_at
    JOIN sources ON sources.asset_id = now.asset_id AND sources.partition_key = now.partition_key"""


# Read: since whatever followed the last stretch in which it was what was read. Not read: since it is there and given.
# Who made something by hand has not said what was read: of that, only what arrived later makes it stale.
_CHANGED = """
    SELECT same.asset_id, same.partition_key, same.current_version, same.upstream_asset_id,
           same.upstream_partition_key, later.became_at AS since FROM (
      SELECT different.asset_id, different.partition_key, different.current_version, different.upstream_asset_id,
             different.upstream_partition_key, different.read_id, max(CASE WHEN
               history_places.materialization_id = different.read_id
               OR history_places.content_hash = different.read_hash THEN history_places.place ELSE 0 END) AS place
      FROM different JOIN history_places ON history_places.asset_id = different.upstream_asset_id
        AND history_places.partition_key = different.upstream_partition_key
      WHERE different.read_id IS NOT NULL
      GROUP BY different.asset_id, different.partition_key, different.current_version, different.upstream_asset_id,
               different.upstream_partition_key, different.read_id
    ) AS same JOIN history_places AS later ON later.asset_id = same.upstream_asset_id
      AND later.partition_key = same.upstream_partition_key AND later.place = same.place + 1
    UNION ALL
    SELECT different.asset_id, different.partition_key, different.current_version, different.upstream_asset_id,
           different.upstream_partition_key,
           greatest(arrived.became_at, coalesce(different.given_from, arrived.became_at)) AS since
    FROM different JOIN history_places AS arrived ON arrived.asset_id = different.upstream_asset_id
      AND arrived.partition_key = different.upstream_partition_key AND arrived.place = 1
    WHERE different.read_id IS NULL AND (different.run_id IS NOT NULL OR arrived.became_at > different.made_at)"""
_REMOVED = """
    SELECT judged.asset_id, judged.partition_key, judged.current_version, removed.upstream_asset_id,
           removed.upstream_partition_key, removed.removed_at AS since
    FROM judged JOIN removed_inputs AS removed
      ON removed.asset_id = judged.asset_id AND removed.partition_key = judged.partition_key"""


# ── what the partition itself says ───────────────────────────────────────────────────────────────────────────────


def _deadline() -> str:
    seconds = "judged.freshness_seconds"
    return (
        f"judged.made_at + INTERVAL '1' DAY * CAST(({seconds} - {seconds} % 86400) / 86400 AS INT)"
        f" + INTERVAL '1' SECOND * CAST({seconds} % 86400 AS INT)"
    )


# Since it became current, or since it was made: whoever goes back to data that was declared stale has it as it was.
_INVALIDATED = "(judged.invalidation_version > judged.current_version OR judged.invalidated_at > judged.made_at)"


def _own(parts: Parts) -> str:
    due = f"CASE WHEN {_deadline()} <= asked_at.now_at THEN {_deadline()} END" if parts.freshness else _NO_TIME
    late = f" OR {_deadline()} <= asked_at.now_at" if parts.freshness else ""
    return f"""
    SELECT judged.asset_id, judged.partition_key, judged.current_version, judged.made_with,
           CASE WHEN {_INVALIDATED} THEN judged.invalidated_at END AS invalidated,
           judged.made_with <> judged.code_version AS recoded, {due} AS due
    FROM judged CROSS JOIN asked_at
    WHERE {_INVALIDATED} OR judged.made_with <> judged.code_version{late}"""


def _code_places(parts: Parts) -> str:
    return f"""
    SELECT version.asset_id, {_code("version.code_version", parts)} AS code_version, version.deployed_at,
           row_number() OVER (PARTITION BY version.asset_id ORDER BY version.deployment_version) AS place
    FROM asset_versions AS version JOIN judged_assets AS asset ON asset.asset_id = version.asset_id
    {_classes("version", "code_version", parts)}"""


# For each code that an asset ever had, the deployment that took it away for good.
_CODE_ENDS = """
    SELECT last.asset_id, last.code_version, next.deployed_at AS ended_at FROM (
      SELECT asset_id, code_version, max(place) AS place FROM code_places WHERE code_version IS NOT NULL
      GROUP BY asset_id, code_version
    ) AS last JOIN code_places AS next ON next.asset_id = last.asset_id AND next.place = last.place + 1"""


def _every(parts: Parts) -> str:
    own = f"""
    SELECT own_reasons.asset_id, own_reasons.partition_key, own_reasons.current_version, own_reasons.invalidated,
           CASE WHEN own_reasons.recoded THEN coalesce(code_ends.ended_at, asked_at.epoch_at) END AS recoded,
           {_NO_TIME} AS changed, own_reasons.due
    FROM own_reasons CROSS JOIN asked_at LEFT JOIN code_ends
      ON code_ends.asset_id = own_reasons.asset_id AND code_ends.code_version = own_reasons.made_with"""
    if not parts.changes:
        return own
    return f"""{own}
    UNION ALL
    SELECT changed.asset_id, changed.partition_key, changed.current_version, {_NO_TIME}, {_NO_TIME}, changed.since,
           {_NO_TIME}
    FROM changed_inputs AS changed CROSS JOIN asked_at"""


def _not_before(moment: str) -> str:
    return f"CASE WHEN one.{moment} IS NOT NULL THEN greatest(one.{moment}, one.became_at) END"


_RESULT = f"""
SELECT one.asset_id, one.partition_key, {_not_before("invalidated")} AS invalidated_since,
       {_not_before("recoded")} AS code_since, {_not_before("changed")} AS upstream_since,
       {_not_before("due")} AS freshness_since
FROM (
  SELECT stale.*, {moment_sql("stale.current_version")} AS became_at FROM (
    SELECT asset_id, partition_key, current_version, max(invalidated) AS invalidated, max(recoded) AS recoded,
           min(changed) AS changed, max(due) AS due
    FROM every_reason GROUP BY asset_id, partition_key, current_version
  ) AS stale CROSS JOIN asked_at
) AS one"""
