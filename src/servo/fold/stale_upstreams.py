"""Partitions that are stale because an upstream is, as SQL for both engines: one step for each level of the graph.

An asset is one level above the highest of its upstreams, so that by the time its turn comes, everything below it is
known. Beside the relations of `staleness.py` there must be `stale_now` (its answer); `made_from` pairs partitions with
their inputs, `stale_so_far` begins with the roots, and each level adds its own rows to it.
"""

from __future__ import annotations

from servo.fold.rows import Kind
from servo.fold.staleness import COLUMNS, moment_sql, reason_sql

# The level of each asset, and the key by which roots are put in order.
LEVELS = {"asset_id": Kind.TEXT, "asset_key": Kind.TEXT, "level": Kind.INTEGER}

_EARLIEST = f"least({', '.join(COLUMNS)})"
_CODE = reason_sql("stale_now.")


def roots_sql() -> str:
    """The roots: partitions that are stale by themselves. The steps begin with them."""
    return f"""
SELECT stale_now.asset_id, stale_now.partition_key, {_EARLIEST} AS since, 0 AS depth,
       asset_levels.asset_key AS root_asset_key, stale_now.partition_key AS root_partition_key, {_CODE} AS root_code,
       true AS by_itself, asset_levels.level
FROM stale_now JOIN asset_levels ON asset_levels.asset_id = stale_now.asset_id"""


def made_from_sql(edges: str) -> str:
    """The edges of `edges_sql`, with the level of the partition that was made."""
    return f"SELECT edges.*, asset_levels.level FROM ({edges}) AS edges JOIN asset_levels USING (asset_id)"


# What inputs make of the partitions of a level, the first number, given all that is known of lower ones; none of its
# inputs is below the second.
#
# A root is looked for through partitions that are not roots themselves: the nearest one is named, and of several that
# are equally near the first by its keys. Since when is passed on through all of them.
STEP = f"""
SELECT inputs.asset_id, inputs.partition_key, inputs.since, inputs.depth, inputs.root_asset_key,
       inputs.root_partition_key, inputs.root_code, false AS by_itself, inputs.level
FROM (
  SELECT made_from.asset_id, made_from.partition_key, made_from.level, input.depth + 1 AS depth, input.root_asset_key,
         input.root_partition_key, input.root_code,
         greatest({moment_sql("made_from.current_version")}, min(input.since) OVER of_one) AS since,
         row_number() OVER (PARTITION BY made_from.asset_id, made_from.partition_key
           ORDER BY input.depth, input.root_asset_key, input.root_partition_key) AS place
  FROM made_from CROSS JOIN asked_at
  JOIN stale_so_far AS input ON input.asset_id = made_from.upstream_asset_id
    AND input.partition_key = made_from.upstream_partition_key
  WHERE made_from.level = {{0}} AND input.level >= {{1}}
  WINDOW of_one AS (PARTITION BY made_from.asset_id, made_from.partition_key)
) AS inputs WHERE inputs.place = 1"""


def answer_sql() -> str:
    """The stale partitions with all their reasons and their roots, once all levels are known."""
    own = ", ".join(f"stale_now.{column}" for column in COLUMNS)
    return f"""
SELECT known.asset_id, known.partition_key, {own}, known.upstream_stale_since, known.root_asset_key,
       known.root_partition_key, known.root_code
FROM (
  SELECT asset_id, partition_key, max(CASE WHEN NOT by_itself THEN since END) AS upstream_stale_since,
         max(CASE WHEN NOT by_itself THEN root_asset_key END) AS root_asset_key,
         max(CASE WHEN NOT by_itself THEN root_partition_key END) AS root_partition_key,
         max(CASE WHEN NOT by_itself THEN root_code END) AS root_code
  FROM stale_so_far GROUP BY asset_id, partition_key
) AS known LEFT JOIN stale_now
  ON stale_now.asset_id = known.asset_id AND stale_now.partition_key = known.partition_key"""
