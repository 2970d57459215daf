"""Run the benchmarks whose ids start with one of the given words, or all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from bench.figure import Figure
from bench.measure_api import of_a_million, one_backfill, post_runs, remote_command, standing_by
from bench.measure_append import append_postgres, append_sqlite
from bench.measure_automation import ask_built_in, pass_of_a_thousand, pass_of_none
from bench.measure_backfills import idle_chunks, idle_sizes, on_spark, preview_many, steer_many
from bench.measure_batches import sampled_batch
from bench.measure_cli import cold_query, help_time
from bench.measure_fold import bytes_on_disk, fold_few_over_many, fold_million, record_a_large_run
from bench.measure_lineage import walk_a_million
from bench.measure_load import highest_rate_postgres, highest_rate_sqlite
from bench.measure_read import count_million, count_ten_million, find_one
from bench.measure_runs import asset_list, first_job, import_time, runs_on_spark
from bench.measure_sessions import session_of_its_own, slices_and_one_batch
from bench.measure_staleness import stale_after_few, stale_deep, stale_long, stale_wide
from bench.measure_up import due_to_requested, push_to_acknowledged
from bench.measure_why import count_million as count_statuses
from bench.measure_why import explain_one

BENCHMARKS: dict[str, Callable[[], Iterator[Figure]]] = {
    "append.sqlite": append_sqlite,
    "append.postgres": append_postgres,
    "record.run": record_a_large_run,
    "fold.million": fold_million,
    "fold.few": fold_few_over_many,
    "disk.partition": bytes_on_disk,
    "read.count": count_million,
    "read.key": find_one,
    "read.count_ten_million": count_ten_million,
    "cli.help": help_time,
    "cli.query": cold_query,
    "cli.import": import_time,
    "cli.asset_list": asset_list,
    "sessions.call": session_of_its_own,
    "sessions.slices": slices_and_one_batch,
    "staleness.long": stale_long,
    "staleness.wide": stale_wide,
    "staleness.after": stale_after_few,
    "staleness.deep": stale_deep,
    "status.count": count_statuses,
    "status.why": explain_one,
    "lineage": walk_a_million,
    "backfill.preview": preview_many,
    "backfill.steer": steer_many,
    "backfill.idle": idle_chunks,
    "backfill.sizes": idle_sizes,
    "backfill.on_spark": on_spark,
    "schedules.due": pass_of_a_thousand,
    "schedules.idle": pass_of_none,
    "schedules.requested": due_to_requested,
    "sensors.push": push_to_acknowledged,
    "sensors.ask": ask_built_in,
    "api.backfill": one_backfill,
    "api.million": of_a_million,
    "api.post_run": post_runs,
    "api.load.sqlite": highest_rate_sqlite,
    "api.load.postgres": highest_rate_postgres,
    "up.idle": standing_by,
    "cli.remote": remote_command,
    "batches.sample": sampled_batch,
    "runs.on_spark": runs_on_spark,
    "runs.first_job": first_job,
}


def main(wanted: list[str]) -> int:
    chosen = {
        name: run for name, run in BENCHMARKS.items() if not wanted or any(name.startswith(word) for word in wanted)
    }
    if not chosen:
        sys.stderr.write(f"bench: nothing starts with {' or '.join(wanted)}; there are {', '.join(BENCHMARKS)}\n")
        return 2
    for number, (name, run) in enumerate(chosen.items(), 1):
        sys.stderr.write(f"[{number}/{len(chosen)}] {name}\n")
        for figure in run():
            sys.stdout.write(figure.line() + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
