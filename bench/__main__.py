"""Runs benchmarks, each in a process of its own: the quick ones, all (`--all`), or those that start with given words.

Each figure is one line of JSON on standard output. A table of figures against aims follows on standard error, and the
exit code is 1 where an aim is missed by more than a fifth.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from bench.comparison import compared, is_missed
from bench.figure import Figure
from bench.measure_api import of_a_million, one_backfill, post_runs, remote_command, standing_by
from bench.measure_append import append_postgres, append_sqlite
from bench.measure_automation import ask_built_in, pass_of_a_thousand, pass_of_none
from bench.measure_backfills import idle_chunks, idle_sizes, on_spark, preview_many, steer_many
from bench.measure_batches import sampled_batch
from bench.measure_cli import cold_query, help_time
from bench.measure_fold import bytes_on_disk, fold_few_over_many, fold_million, record_a_large_run
from bench.measure_lineage import walk_a_million
from bench.measure_load import highest_rate_postgres, highest_rate_sqlite, mixed_postgres, mixed_sqlite, reads_alone
from bench.measure_read import count_million, count_ten_million, find_one
from bench.measure_runs import asset_list, first_job, import_time, runs_on_spark
from bench.measure_sessions import narrow_slices, session_of_its_own, slices_and_one_batch
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
    "sessions.narrow": narrow_slices,
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
    "api.mixed.sqlite": mixed_sqlite,
    "api.mixed.postgres": mixed_postgres,
    "api.reads": reads_alone,
    "api.load.sqlite": highest_rate_sqlite,
    "api.load.postgres": highest_rate_postgres,
    "up.idle": standing_by,
    "cli.remote": remote_command,
    "batches.sample": sampled_batch,
    "runs.on_spark": runs_on_spark,
    "runs.first_job": first_job,
}


# Those that take seconds, or a minute: together they are to be done in a quarter of an hour on two cores.
QUICK = (
    "append",
    "fold.few",
    "read.key",
    "cli",
    "sessions",
    "staleness.after",
    "status.why",
    "backfill.preview",
    "backfill.steer",
    "backfill.idle",
    "schedules",
    "sensors.ask",
    "api.backfill",
    "api.post_run",
    "api.mixed",
    "api.reads",
    "up.idle",
    "batches",
    "runs.on_spark",
)


def main(words: list[str], *, everything: bool) -> int:
    """Run benchmarks one after another, and compare what they found with the aims."""
    begins = tuple(words) or (("",) if everything else QUICK)
    chosen = [name for name in BENCHMARKS if name.startswith(begins)]
    if not chosen:
        sys.stderr.write(f"bench: nothing starts with {' or '.join(words)}; there are {', '.join(BENCHMARKS)}\n")
        return 2
    figures, failed = list[Figure](), list[str]()
    for number, name in enumerate(chosen, 1):
        sys.stderr.write(f"[{number}/{len(chosen)}] {name}\n")
        began = time.monotonic()
        # In a process of its own: memory that one benchmark took must not count for the next.
        command = [sys.executable, "-m", "bench", "--here", name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                sys.stdout.write(line)
                sys.stdout.flush()
                figures.append(Figure(**json.loads(line)))
        if process.returncode:
            failed.append(name)
        sys.stderr.write(f"    {time.monotonic() - began:.0f} s\n")
    compared(figures, failed)
    return 1 if failed or any(map(is_missed, figures)) else 0


def here(name: str) -> int:
    """Run one benchmark in this process."""
    for figure in BENCHMARKS[name]():
        sys.stdout.write(figure.line() + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("words", nargs="*", help="how the ids of the benchmarks to run begin")
    parser.add_argument("--all", action="store_true", help="run all benchmarks, also those that take minutes")
    parser.add_argument("--here", choices=BENCHMARKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.exit(here(options.here) if options.here else main(options.words, everything=options.all))
