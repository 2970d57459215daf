"""The sender of OpenLineage events: each is sent at least once, and no run waits for it.

Set by the variables that OpenLineage's own clients know: `OPENLINEAGE_URL`, `OPENLINEAGE_API_KEY`,
`OPENLINEAGE_NAMESPACE`. The position up to which it has sent is kept in a small file in the project's home, so that
what could not be sent today is sent tomorrow. It begins where the ledger ends when it is first switched on.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from threading import Event, Thread
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from servo import decoders
from servo.errors import ServoError
from servo.events import decode
from servo.lineage.openlineage import RunEvents
from servo.runtime.wiring import Project

__all__ = ["openlineage_sender"]

log = logging.getLogger(__name__)

_STEP = 200  # events that are sent between two writes of the position
_LOOK_SECONDS = 1.0
_POST_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_DRAIN_SECONDS = 5.0  # at the end, for what has just happened
_TRY_AGAIN = frozenset({408, 425, 429})  # of the 4xx, those that are about the moment and not about the event


class _ServerAway(Exception):  # noqa: N818 (nobody did anything wrong)
    """The server cannot take events now."""


class _Position:
    """The position up to which events were sent, in a file that one process at a time holds."""

    def __init__(self, project: Project) -> None:
        folder = project.settings.home / "openlineage"
        self._name = f"{project.workspace.tenant}.{project.workspace.name}"
        self._path = folder / f"{self._name}.json"
        self._held: IO[str] | None = None

    def hold(self) -> bool:
        """Take the lock; False where another process sends the events of this workspace."""
        if self._held is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            held = self._path.with_suffix(".lock").open("w")
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                held.close()
                return False
            self._held = held
        return True

    def release(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def read(self) -> int | None:
        try:
            return decoders.decode(self._path.read_bytes(), dict[str, int])["position"]
        except (FileNotFoundError, KeyError, msgspec.DecodeError):
            return None

    def write(self, position: int) -> None:
        part = self._path.with_suffix(".part")
        part.write_bytes(msgspec.json.encode({"position": position}))
        part.replace(self._path)


class OpenLineageSender(Thread):
    """Reads the ledger from where it left off, and posts events of runs."""

    def __init__(self, project: Project, url: str, *, key: str | None, namespace: str | None) -> None:
        super().__init__(name="openlineage", daemon=True)
        self._project = project
        self._url = f"{url.rstrip('/')}/api/v1/lineage"
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        scope = project.workspace
        self._run_events = RunEvents(
            namespace=namespace or f"servo.{scope.tenant}.{scope.name}",
            producer=f"urn:servo:orchestrator:{metadata.version('servo')}",
        )
        self._opener = build_opener(_NoRedirects())
        self._stored = _Position(project)
        self._ending = Event()
        self._deadline: float | None = None
        self._away = False
        self._refused = False
        self._pause = _FIRST_PAUSE
        # Looked at before anybody works, so that nothing of what follows is missed.
        self._begin = project.history.head().position

    def end(self) -> None:
        """Send what has just happened, if that is soon done, and stop."""
        self._deadline = time.monotonic() + _DRAIN_SECONDS
        self._ending.set()
        self.join(_DRAIN_SECONDS + 1)

    def run(self) -> None:
        try:
            while not self._stored.hold():
                if self._ending.wait(_LOOK_SECONDS):
                    return
            self._follow()
        except Exception as problem:  # noqa: BLE001 (whatever it is, the runs go on)
            log.warning("OpenLineage is told nothing more: %s", problem, extra={"action": "openlineage.ended"})
        finally:
            self._stored.release()

    def _follow(self) -> None:
        stored = self._stored.read()
        head = self._project.history.head().position
        # Of another ledger, if it is beyond the end of this one.
        position = stored if stored is not None and stored <= head else self._begin
        self._stored.write(position)
        while True:
            # Asked before it looks: what happens while it waits for news is among the last that it tells.
            ending = self._ending.is_set()
            try:
                sent = self._send_new(position)
            except ServoError as problem:
                log.debug("%s", problem, extra={"action": "openlineage.ledger"})
                sent = position
                if self._ending.wait(_LOOK_SECONDS):
                    return
            if sent == position and ending:
                return
            position = sent
            if self._deadline is not None and time.monotonic() > self._deadline:
                return

    def _send_new(self, position: int) -> int:
        """Send what is new, and wait a while if there is nothing; the position up to which events were sent."""
        events = next(self._project.follower.new_events(position), [])
        if not events:
            if not self._ending.is_set():
                self._project.follower.wait(position, _LOOK_SECONDS)
            return position
        sent = position
        try:
            for event in events[:_STEP]:
                document = self._run_events.run_event(event, decode(event))
                if document is not None:
                    self._post(document)
                sent = event.position
        except _ServerAway as problem:
            self._back_off(problem)
        if sent != position:
            self._stored.write(sent)
        return sent

    def _post(self, document: dict[str, Any]) -> None:
        request = Request(self._url, data=msgspec.json.encode(document), headers=self._headers, method="POST")
        patience = _POST_SECONDS
        if self._deadline is not None:
            patience = max(min(patience, self._deadline - time.monotonic()), 0.1)
        try:
            with self._opener.open(request, timeout=patience) as answer:
                answer.read()
        except HTTPError as problem:
            with problem:
                if problem.code >= 500 or problem.code in _TRY_AGAIN:
                    raise _ServerAway(f"it answers {problem.code}") from problem
                if not self._refused:
                    # It would refuse it tomorrow as well, and all that follows would wait for it.
                    log.warning(
                        "the OpenLineage server refuses an event with %s; such events are left out",
                        problem.code,
                        extra={"action": "openlineage.refused"},
                    )
                    self._refused = True
        except (URLError, OSError) as problem:
            raise _ServerAway(str(getattr(problem, "reason", problem))) from problem
        self._reset_pause()

    def _back_off(self, problem: _ServerAway) -> None:
        """Warn once, and wait longer each time."""
        if not self._away:
            log.warning(
                "the OpenLineage server at %s is away (%s): what happens is told when it is back",
                urlsplit(self._url).hostname,
                problem,
                extra={"action": "openlineage.away"},
            )
        self._away = True
        self._ending.wait(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _reset_pause(self) -> None:
        if self._away:
            log.info("the OpenLineage server is back", extra={"action": "openlineage.back"})
        self._away, self._pause = False, _FIRST_PAUSE


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects: the key is for this server and no other."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@contextmanager
def openlineage_sender(
    project: Project, environment: Mapping[str, str] = os.environ
) -> Iterator[OpenLineageSender | None]:
    """Send what happens inside the block to an OpenLineage server, where one is set."""
    sender = _started(project, environment)
    try:
        yield sender
    finally:
        if sender is not None:
            sender.end()


def _started(project: Project, environment: Mapping[str, str]) -> OpenLineageSender | None:
    url = environment.get("OPENLINEAGE_URL", "").strip()
    if not url or environment.get("OPENLINEAGE_DISABLED", "").lower() in ("true", "1"):
        return None
    if urlsplit(url).scheme not in ("http", "https"):
        log.warning("OPENLINEAGE_URL is no http address; nothing is told", extra={"action": "openlineage.url"})
        return None
    try:
        sender = OpenLineageSender(
            project,
            url,
            key=environment.get("OPENLINEAGE_API_KEY") or None,
            namespace=environment.get("OPENLINEAGE_NAMESPACE") or None,
        )
        sender.start()
    except Exception as problem:  # noqa: BLE001 (whatever it is, the runs go on)
        log.warning("OpenLineage is told nothing: %s", problem, extra={"action": "openlineage.unstarted"})
        return None
    return sender
