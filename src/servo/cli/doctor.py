"""`servo doctor`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

import click

from servo import __version__
from servo.cli.opening import about_here, server, show_warnings
from servo.cli.options import json_option
from servo.cli.output import echo_json, note
from servo.cli.remote import token_for
from servo.client.transport import Transport
from servo.clock import system_clock
from servo.errors import InvalidSettings, NotAllowed, ServoError
from servo.local_server import running_server
from servo.runtime.doctor import Check, examine, examine_without_settings, failed, good, problem, warning
from servo.runtime.settings import load_settings
from servo.runtime.wiring import open_workspace

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Check this machine, this project and its server; change nothing.

    Looks at Python, Java, the packages, Spark, the settings, the ledger and its newest events, the archive, the
    projections, the disks, the clock, and the server: that of SERVO_URL, or the `servo up` of this folder.
    Exits with 1 if anything is wrong (✗); a warning (!) does not count as wrong.
    """
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
        echo_json(diagnosis)
    else:
        for check in diagnosis.checks:
            mark, colour = _MARKS[check.level]
            click.echo(f"{click.style(mark, fg=colour)} {check.name}: {check.detail}")
            if check.remedy and check.level != "ok":
                click.echo(f"  → {check.remedy}")
        for setting in diagnosis.settings:
            note(f"  {setting.key} = {setting.value} ({setting.origin})")
    return 0 if diagnosis.ok else 1


_SECONDS = 5.0
_SKEW_SECONDS = 5.0
_CHECKED = {"ledger": "the ledger", "projections": "the projections", "control": "who plans", "worker": "who computes"}


def server_checks(home: Path | None) -> Iterator[Check]:
    """Whether it answers, in which version, whether it is ready, takes the token, and what time it has."""
    url = server()
    if url is None:
        running = None if home is None else running_server(home)
        if running is None:
            yield good("server", "none of this folder is up; `servo up` starts one")
            return
        url = running.url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    try:
        with closing(Transport(url, token_for(url), timeout=_SECONDS, retry_seconds=0.0)) as transport:
            yield from _examined(transport)
    except ServoError as why:
        yield failed("server", why)
    except (OSError, HTTPException, ValueError) as why:
        yield problem("server", f"{url} does not answer as a Servo: {why}", "see SERVO_URL")


def _examined(transport: Transport) -> Iterator[Check]:
    document = json.loads(transport.ask("GET", "/schema/openapi.json").body)
    version = str(document["info"]["version"])
    date = transport.ask("GET", "/healthz").date
    text = f"{transport.url} answers, version {version}"
    if version == __version__:
        yield good("server", text)
    else:
        yield warning("server", f"{text}, and this is {__version__}", "install the same version on both")
    if date is not None:
        yield _clock(parsedate_to_datetime(date))
    try:
        ready = json.loads(transport.ask("GET", "/readyz", refused=(503,)).body)
    except NotAllowed as why:
        yield problem("token", why.message, "make one there: `servo token create NAME --role viewer`; set SERVO_TOKEN")
        return
    yield good("token", "is accepted" if os.environ.get("SERVO_TOKEN") else "none is needed here")
    yield _readiness(ready)


def _readiness(ready: dict[str, Any]) -> Check:
    wrong = [one for one in ready.get("checks", []) if not one["ok"]]
    status = str(ready.get("status", "unready"))
    workers = next((one.get("detail") for one in ready.get("checks", []) if one["name"] == "worker"), None)
    if not wrong and status == "ready":
        if workers == "none":
            return warning(
                "readiness", "ready, and nobody computes", "start `servo worker`, or `servo up` with workers"
            )
        return good("readiness", f"ready, workers: {workers}")
    words = "; ".join(
        f"{_CHECKED.get(one['name'], one['name'])}: {one.get('detail') or one.get('problem')}" for one in wrong
    )
    if status == "degraded":
        return warning("readiness", f"degraded: {words}", "work waits until it is there: start `servo worker`")
    return problem("readiness", f"{status}: {words}", "run `servo doctor` in the server's folder, and look at its log")


def _clock(there: datetime) -> Check:
    apart = abs((system_clock() - there).total_seconds())
    if apart > _SKEW_SECONDS:
        return warning("server clock", f"it is {apart:.0f} seconds apart from ours", "set the clock of either machine")
    return good("server clock", f"{there:%Y-%m-%dT%H:%M:%SZ}, as ours")
