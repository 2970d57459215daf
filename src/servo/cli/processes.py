"""`servo up`, `servo worker` and `servo tick`: the processes that make things go on.

What they run is loaded when it runs: Spark, the server and the control loop, for which `--help` need not wait.
"""

from __future__ import annotations

import click

from servo.cli.options import json_option


@click.command()
@click.option("--workers", type=click.IntRange(min=0), default=1, show_default=True, help="Processes that run tasks.")
@click.option("--host", metavar="ADDRESS", help="Where the server listens: 127.0.0.1, or server.host of the settings.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Its port, 0 for any: 8765, or server.port of the settings."
)
@json_option
def up(workers: int, host: str | None, port: int | None, as_json: bool) -> None:
    """Run everything here, and workers beside it, until Ctrl-C or SIGTERM.

    The control loop plans runs, ends them and notices lost workers; the driver ticks schedules and polls sensors; the
    server takes messages. None of it is in a JVM's process. A worker that dies is started again. More workers may run
    elsewhere: `servo worker`. Several `servo up` may share a PostgreSQL ledger.
    """
    from servo.cli.up import run_up  # noqa: PLC0415 (the server and the control loop come with it)

    run_up(workers, host, port, as_json=as_json)


@click.command()
@click.option("--until-idle", is_flag=True, help="End when no run is under way.")
@click.option("--for", "run_id", metavar="RUN", help="End when this run has ended.")
@click.option("--child", is_flag=True, hidden=True, help="End when standard input does: whoever started it is gone.")
@json_option
def worker(until_idle: bool, run_id: str | None, child: bool, as_json: bool) -> None:
    """Take tasks and run them on Spark, until stopped.

    As many workers as you like may run, on as many machines as reach the ledger and the storage. Ctrl-C or SIGTERM ends
    one cleanly: what it is at is handed back and another worker takes it. Somebody must plan the runs: `servo up`.
    """
    from servo.cli.worker import run_worker  # noqa: PLC0415 (Spark comes with it)

    run_worker(until_idle=until_idle, run_id=run_id, child=child, as_json=as_json)


@click.command()
@click.option("--work", is_flag=True, help="Also see through all runs that are to be done, and end when they have.")
@json_option
def tick(*, work: bool, as_json: bool) -> int:
    """Do what is due by schedules and sensors, once, and exit: for cron, Cloud Tasks or a CronJob.

    Definitions that have changed take effect first. Any number may run at the same time, beside `servo up` too: each
    tick happens once. Without --work somebody else must do the runs (`servo up`). Ticks and evaluations that failed are
    exit code 1, and so are runs with --work.
    """
    from servo.cli.tick import run_tick  # noqa: PLC0415 (the control loop comes with it)

    return run_tick(work=work, as_json=as_json)
