"""Runs the server in a thread of the calling process."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import uvicorn

from servo.api.app import create_app
from servo.api.auth import LocalAccess
from servo.api.events import Streams
from servo.api.server import Driver
from servo.api.slow_clients import BoundedProtocol
from servo.errors import EnvironmentProblem, InvalidSettings
from servo.local_server import is_loopback, make_owner_token, owner_token_path
from servo.runtime.outside import ServerUserCode
from servo.runtime.tokens import TokenBook
from servo.runtime.wiring import Project

__all__ = ["Served", "serving"]

log = logging.getLogger(__name__)

_START_SECONDS = 30.0
_GRACE_SECONDS = 30
_CONNECTIONS = 1000
_BACKLOG = 512


class Served:
    """A server at work: where it listens, and whether it still does."""

    def __init__(self, host: str, port: int, thread: Thread, problem: list[BaseException]) -> None:
        self.host = host
        self.port = port
        self._thread = thread
        self._problem = problem

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def problem(self) -> BaseException | None:
        """What ended it, where it has ended by itself."""
        if self._problem:
            return self._problem[0]
        return None if self._thread.is_alive() else EnvironmentProblem("the server ended", hint="see the log")


@contextmanager
def serving(
    project: Project,
    *,
    user_code: ServerUserCode,
    driver: Driver,
    host: str | None = None,
    port: int | None = None,
    or_any_port: bool = False,
    grace: int = _GRACE_SECONDS,
) -> Iterator[Served]:
    """Serve until the block ends; then no new request is taken, and those under way are answered within `grace` s.

    `host` and `port` are those of the settings unless given; port 0 is any free one, and the answer says which. With
    `or_any_port`, so it is where that port is taken.
    """
    place = project.settings.server
    host, port = place.host if host is None else host, place.port if port is None else port
    local = _local_access(project) if is_loopback(host) else None
    if local is None:
        _require_token(project, host)
    streams = Streams(project)
    config = uvicorn.Config(
        create_app(project, user_code, driver, streams, local=local),
        loop="uvloop",
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=grace,
    )
    listening = _listen(host, port, or_any_port=or_any_port)
    server, ready, problem = _Server(config), Event(), list[BaseException]()
    server.ready = ready
    thread = Thread(target=_run, args=(server, listening, problem), name="servo-server", daemon=True)
    thread.start()
    try:
        ready.wait(_START_SECONDS)
        if problem or not server.started:
            raise EnvironmentProblem("the server did not start", hint="see the log") from next(iter(problem), None)
        yield Served(host, listening.getsockname()[1], thread, problem)
    finally:
        streams.close()  # whoever follows the events would follow them for ever
        server.should_exit = True
        thread.join(grace + _START_SECONDS)
        if thread.is_alive():
            log.warning("requests are still under way; they are left", extra={"action": "api.left"})


class _Server(uvicorn.Server):
    """Says when it listens, or that it never will."""

    ready: Event

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


def _run(server: _Server, listening: socket.socket, problem: list[BaseException]) -> None:
    try:
        server.run(sockets=[listening])
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        log.exception("the server ended", extra={"action": "api.ended"})
        problem.append(error)
    finally:
        server.ready.set()
        listening.close()


def _local_access(project: Project) -> LocalAccess:
    """The owner of a loopback server, with a token that is made at the first start."""
    home = project.settings.home
    path = owner_token_path(home)
    try:
        return LocalAccess(os.geteuid(), make_owner_token(home), path)
    except OSError as problem:
        log.warning(
            "%s cannot be made (%s): where the user of a request cannot be told, it is refused without a token",
            path,
            problem.strerror,
            extra={"action": "api.owner_token"},
        )
        return LocalAccess(os.geteuid(), None, None)


def _require_token(project: Project, host: str) -> None:
    """Refuse to listen beyond loopback while there is no token: nobody could ever use the server."""
    if not TokenBook(project).live:
        raise InvalidSettings(
            f"server.host: {host!r:.80} is no loopback address, any other demands tokens, and there are none",
            hint="make one first: servo token create NAME --role operator; or use 127.0.0.1",
        )


def _listen(host: str, port: int, *, or_any_port: bool = False) -> socket.socket:
    try:
        return _bound(host, port)
    except OverflowError:
        raise InvalidSettings(f"server.port: {port} is no port", hint="give 0 to 65535") from None
    except OSError as error:
        # Not looked at before: of two that start at once, both would see that it is free.
        if or_any_port and error.errno == errno.EADDRINUSE:
            return _listen(host, 0)
        what = f"cannot listen at {host}:{port}: {error.strerror}"
        raise EnvironmentProblem(what, hint="is another server there? give another --port") from error


def _bound(host: str, port: int) -> socket.socket:
    """A socket of its own, so that the port is known and taken before the server runs."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    # asyncio sends small answers at once only where the protocol is named; else each waits 40 ms for the client.
    listening = socket.socket(family, kind, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening
