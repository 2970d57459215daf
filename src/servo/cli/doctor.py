"""`servo doctor`."""

from __future__ import annotations

import click

from servo.cli.doctor_server import server_checks
from servo.cli.opening import about_here
from servo.cli.options import json_option, show_warnings
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, plain_struct
from servo.errors import InvalidSettings

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check this machine, this project and its server; change nothing.

    Looks at Python, Java, the packages, Spark, the settings, the ledger and its newest events, the archive, the
    projections, the disks, the clock, and the server: that of SERVO_URL, or the `servo up` of this folder.
    Exits with 1 if anything is wrong (✗); a warning (!) does not count as wrong.
    """
    from servo.runtime.doctor import examine, examine_without_settings
    from servo.runtime.settings import load_settings
    from servo.runtime.wiring import open_workspace

    show_warnings(as_json=as_json)
    about_here(but="the server's checks")
    home = None
    try:
        with open_workspace(load_settings()) as project:
            home = project.settings.home
            diagnosis = examine(project)
    except InvalidSettings as problem:
        diagnosis = examine_without_settings(problem)
    diagnosis = diagnosis.with_checks(server_checks(home))
    if as_json:
        echo_json(plain_struct(diagnosis))
    else:
        for check in diagnosis.checks:
            mark, colour = _MARKS[check.level]
            click.echo(f"{click.style(mark, fg=colour)} {check.name}: {check.detail}")
            if check.remedy and check.level != "ok":
                click.echo(f"  → {check.remedy}")
        for setting in diagnosis.settings:
            note(f"  {setting.key} = {setting.value} ({setting.origin})")
    ctx.exit(0 if diagnosis.ok else 1)
