"""How commands get at the project of the current folder, and in whose name they act."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, NoReturn

from servo.cli.lean import do_without_pandas
from servo.cli.options import show_warnings
from servo.errors import InvalidInput, InvalidSettings

if TYPE_CHECKING:
    from servo.cli.services import Services
    from servo.runtime.data import Data
    from servo.runtime.wiring import Project


READ_AHEAD = "servo-read-ahead"
"""What its thread is called."""


def read_ahead() -> None:
    """For a command that only reads: load the database in a thread, as there are other things to load until then."""
    if server() is not None:
        return  # whose database it is
    do_without_pandas()

    def load() -> None:
        with suppress(ImportError):  # the command will meet it too, and say so
            # By name, and nothing of ours: of two threads that import modules which need each other, one may be given
            # a module that is only half made.
            import_module("duckdb")

    # Nobody waits for it: a command that was refused is over at once (`servo.cli.main` takes nothing apart meanwhile).
    Thread(target=load, name=READ_AHEAD, daemon=True).start()


def server() -> str | None:
    """The address of the server that commands are to ask, if they are to ask one."""
    return os.environ.get("SERVO_URL") or None


def token_for(url: str) -> str | None:
    """SERVO_TOKEN, or the owner's token where the address is that of this folder's own loopback server."""
    from servo.local_server import owner_token_for
    from servo.runtime.settings import load_settings

    given = os.environ.get("SERVO_TOKEN")
    if given:
        return given
    try:
        return owner_token_for(url, lambda: [load_settings().home])
    except InvalidSettings:  # of this folder, and a server is asked
        return None


def needs_folder(what: str = "this command") -> NoReturn:
    raise InvalidInput(
        f"{what} needs the project's folder, and SERVO_URL names a server", hint="run it there, without SERVO_URL"
    )


def about_here(but: str | None = None) -> None:
    """Say, where commands are to ask a server, that this one is about this folder all the same: all `but` a part."""
    url = server()
    if url is not None:
        what = "this is" if but is None else f"all but {but} is"
        logging.getLogger("servo.cli").warning("%s about this folder, not about %s (SERVO_URL)", what, url)


@contextmanager
def services(*, as_json: bool = False, create: bool = False) -> Iterator[Services]:
    """What a command calls: the services of the project in this folder, or of the server that SERVO_URL names."""
    url = server()
    if url is None:
        from servo.cli.services import Services

        with project(as_json=as_json, create=create) as opened:
            here = Services(opened)
            try:
                yield here
            finally:
                here.close()
        return
    from servo.cli.remote import Remote

    show_warnings(as_json=as_json)
    remote = Remote(url)
    try:
        yield remote
    finally:
        remote.close()


@contextmanager
def project(
    *, as_json: bool = False, create: bool = False, local: bool = False, quietly: bool = False, timed: bool = False
) -> Iterator[Project]:
    """The project; with `create`, its ledger is made where there is none yet.

    Where commands are to ask a server, this is refused: what they would say of the folder may be otherwise there.
    `local`: this is about this machine and its ledger, whatever SERVO_URL says, and says so unless it goes without
    saying (`quietly`). `timed`: warnings have the time before them.
    """
    if not local and server() is not None:
        needs_folder()
    from servo.runtime.settings import load_settings
    from servo.runtime.wiring import open_workspace

    show_warnings(as_json=as_json, timed=timed)
    if not quietly:
        about_here()
    with open_workspace(load_settings(), create=create) as opened:
        yield opened


@contextmanager
def data(*, as_json: bool, local: bool = False) -> Iterator[Data]:
    """The data of a project that has a ledger."""
    from servo.runtime.data import Data

    with project(as_json=as_json, local=local) as opened:
        yield Data(opened)


def actor() -> str:
    """Who types: `person:` and the name by which this machine knows them."""
    import getpass

    try:
        return f"person:{getpass.getuser()}"
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return f"person:{os.getuid()}"
