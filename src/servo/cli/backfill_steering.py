"""`servo backfill pause`, `resume` and `cancel`, and how all commands are told which backfill is meant."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from servo.cli.opening import services
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, plain_struct
from servo.cli.progress import aside
from servo.cli.states import counted, marked

if TYPE_CHECKING:
    from servo.answers.backfills import Steered
    from servo.cli.services import Services


_COMPLETED = 50  # of the newest


def _complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The newest ones, with how they stand."""
    found: list[CompletionItem] = []
    with suppress(Exception):  # whatever is wrong, the command will say it better
        from servo.operations.backfills.requests import ListBackfills

        with services() as here:
            jobs = [job for one in here.listed(ListBackfills(), limit=_COMPLETED).items for job in one.jobs]
        found = [CompletionItem(job.name, help=job.display_state) for job in jobs if job.name.startswith(incomplete)]
    return found


named_backfill = click.argument("named", metavar="BACKFILL", shell_complete=_complete)


def nobody_works(here: Services) -> bool:
    """Whether nobody is there to decide, or nobody to compute."""
    return not here.at_work() >= {"control", "worker"}


def _steering(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        json_option,
        click.option("--reason", metavar="WHY", help="Is recorded with it."),
        click.option(
            "--expected-version", type=int, metavar="N", help="Only if `status` still shows this version; else exit 4."
        ),
        named_backfill,
    ):
        command = option(command)
    return command


@click.command()
@_steering
def pause(named: str, *, expected_version: int | None, reason: str | None, as_json: bool) -> None:
    """Start no more chunks; those at work finish. Of a root, in its whole tree."""
    from servo.operations.backfills.requests import PauseBackfill

    with services(as_json=as_json) as here:
        done = here.do(PauseBackfill(backfill=named, expected_state_version=expected_version, reason=reason))
        _steered(done, "what is at work finishes, and nothing new starts", as_json=as_json)
        if not as_json:
            note(f"servo backfill resume {done.name}")


@click.command()
@_steering
def resume(named: str, *, expected_version: int | None, reason: str | None, as_json: bool) -> None:
    """Go on with the next chunk of a paused backfill. Of a root, in its whole tree."""
    from servo.operations.backfills.requests import ResumeBackfill

    with services(as_json=as_json) as here:
        done = here.do(ResumeBackfill(backfill=named, expected_state_version=expected_version, reason=reason))
        _steered(done, "it goes on where it was", as_json=as_json)
        if not as_json and nobody_works(here):
            aside("nothing is at work here: it goes on when `servo up` does")


@click.command()
@_steering
def cancel(named: str, *, expected_version: int | None, reason: str | None, as_json: bool) -> None:
    """End a backfill and its runs; what they have made stays. Of a root, its whole tree."""
    from servo.operations.backfills.requests import CancelBackfill

    with services(as_json=as_json) as here:
        done = here.do(CancelBackfill(backfill=named, expected_state_version=expected_version, reason=reason))
        stopped = f", {counted(done.runs, 'run')} asked to stop" if done.runs else ""
        _steered(done, f"what was made stays{stopped}", as_json=as_json)
        if not as_json and done.runs and nobody_works(here):
            aside("nothing is at work here: its runs end when `servo up` is there")


def _steered(done: Steered, means: str, *, as_json: bool) -> None:
    if as_json:
        echo_json(plain_struct(done))
        return
    jobs = f" with {counted(done.jobs, 'job')}" if done.jobs > 1 else ""
    click.echo(f"{marked(done.state)} {done.name}{jobs}, version {done.state_version}: {means}")
