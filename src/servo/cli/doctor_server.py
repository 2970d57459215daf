"""What `servo doctor` says of the server: that of SERVO_URL, or the `servo up` of this folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servo import __version__
from servo.cli.opening import server, token_for
from servo.clock import system_clock
from servo.errors import NotAllowed, ServoError
from servo.local_server import running_server
from servo.runtime.machine import Check, failed, good, problem, warning

if TYPE_CHECKING:
    from servo.client.transport import Transport

__all__ = ["server_checks"]

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
    from servo.client.transport import Transport

    try:
        asked = Transport(url, token_for(url), timeout=_SECONDS, retry_seconds=0.0)
        try:
            yield from _examined(asked)
        finally:
            asked.close()
    except ServoError as why:
        yield failed("server", why)
    except (OSError, HTTPException, ValueError) as why:
        yield problem("server", f"{url} does not answer as a Servo: {why}", "see SERVO_URL")


def _examined(asked: Transport) -> Iterator[Check]:
    document = json.loads(asked.ask("GET", "/schema/openapi.json").body)
    version = str(document["info"]["version"])
    date = asked.ask("GET", "/healthz").date
    text = f"{asked.url} answers, version {version}"
    if version == __version__:
        yield good("server", text)
    else:
        yield warning("server", f"{text}, and this is {__version__}", "install the same version on both")
    if date is not None:
        yield _clock(parsedate_to_datetime(date))
    try:
        ready = json.loads(asked.ask("GET", "/readyz", refused=(503,)).body)
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
