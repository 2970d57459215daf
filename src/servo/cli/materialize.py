"""`servo materialize`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from servo.cli.completing import complete_assets
from servo.cli.due import say_nothing_due
from servo.cli.opening import services
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note
from servo.cli.progress import aside, outcome_document, summarize, wait_for
from servo.cli.states import counted
from servo.cli.values import plain

if TYPE_CHECKING:
    from servo.answers.runs import Requested
    from servo.cli.services import Services


def tags_from(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """`key=value`, any number of them."""
    tags = {}
    for value in values:
        key, equals, rest = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{value!r} is not of the form key=value")
        tags[key] = rest
    return tags


@click.command()
@click.argument("selection", nargs=-1, required=True, shell_complete=complete_assets)
@click.option("--partitions", metavar="P", help="Which: 2025-01-15, 2025-01-01..2025-01-31, region=eu, latest, all.")
@click.option("--stale", is_flag=True, help="Of the selection, what should run now: stale, missing, and what follows.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher goes first.")
@click.option("--tag", "tags", multiple=True, metavar="K=V", callback=tags_from, help="Mark the run; may be repeated.")
@click.option("--accept-schema", is_flag=True, help="Publish also where the columns are not those of before.")
@click.option("--unfreeze", metavar="REASON", help="Thaw what is frozen of it, for this reason, which is recorded.")
@click.option("--request-id", metavar="ID", help="The same id and selection again is the same run, not a second one.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the run has ended.")
@json_option
@click.pass_context
def materialize(
    ctx: click.Context,
    *,
    selection: tuple[str, ...],
    partitions: str | None,
    stale: bool,
    priority: int,
    tags: dict[str, str],
    accept_schema: bool,
    unfreeze: str | None,
    request_id: str | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Compute partitions of assets: those asked for and no others.

    `+orders` takes in everything upstream of orders, `orders+` everything downstream; `servo plan` explains it first.
    Where no worker is running, one is started here and ends with the run; Ctrl-C then cancels the run. Exits with 1 if
    the run failed or was cancelled.

    \b
    servo materialize +revenue --partitions 2025-01-01..2025-01-31
    servo materialize orders@2025-01-15 --no-wait --json
    servo materialize --stale +revenue
    """
    from servo.operations.runs.requests import CreateDueRun, CreateRun

    asked: dict[str, Any] = {
        "select": selection,
        "partitions": partitions,
        "priority": priority,
        "tags": tags,
        "accept_schema": accept_schema,
    }
    if stale and unfreeze is not None:
        raise click.UsageError("--unfreeze is for partitions that are named: what is frozen is never stale.")
    with services(as_json=as_json, create=True) as here:
        requested: Requested | None
        if stale:
            requested = here.do(CreateDueRun(**asked), key=request_id, wait=wait).run
        else:
            requested = here.do(CreateRun(**asked, unfreeze=unfreeze), key=request_id, wait=wait)
        if requested is None:
            say_nothing_due(as_json=as_json)
            return
        ctx.exit(see_through(here, requested, wait=wait, as_json=as_json))


def see_through(here: Services, requested: Requested, *, wait: bool, as_json: bool) -> int:
    """Wait for a run that was just requested, or say where it can be found; the exit code."""
    if not wait:
        _accepted(here, requested, as_json=as_json)
        return 0
    if not as_json:
        note(f"{requested.run_id}: {_what(requested)}{' (asked for before)' if requested.duplicate else ''}")
    from servo.operations.runs.requests import GetRun

    run = wait_for(here, requested, as_json=as_json)
    details = here.ask(GetRun(run_id=run.run_id))
    if as_json:
        echo_json(_receipt(requested) | outcome_document(run, details))
        return 0 if run.status == "SUCCEEDED" or (run.parked and not run.failed) else 1
    return summarize(run, details, here.label)


def _accepted(here: Services, requested: Requested, *, as_json: bool) -> None:
    if as_json:
        echo_json(_receipt(requested) | {"status": "REQUESTED"})
        return
    already = "was asked for before" if requested.duplicate else "is requested"
    click.echo(f"✓ {requested.run_id} {already}: {_what(requested)}")
    note(f"servo run show {requested.run_id}")
    if not here.at_work() >= {"control", "worker"}:
        aside("nothing is at work here: it begins when `servo up` does")


def _receipt(requested: Requested) -> dict[str, Any]:
    return {
        "run_id": requested.run_id,
        "run_key": requested.run_key,
        "event_id": requested.event_id,
        "accepted_at": plain(requested.accepted_at),
        "duplicate": requested.duplicate,
        "assets": requested.assets,
        "total": requested.total,
    }


def _what(requested: Requested) -> str:
    return f"{counted(requested.total, 'partition')} of {counted(len(requested.assets), 'asset')}"
