"""How commands get at the project of the current folder, or at a server, and in whose name they act."""

from __future__ import annotations

import getpass
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeAlias, TypeVar

from servo.errors import InvalidInput

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from pathlib import Path
    from types import ModuleType

    from servo.answers.assets import AssetDetails, AssetView
    from servo.cli.folder import Folder
    from servo.cli.remote import Remote
    from servo.partitions import Partitions
    from servo.runtime.maintenance import Maintenance
    from servo.runtime.settings import Settings
    from servo.runtime.wiring import Project


READ_AHEAD = "servo-read-ahead"
"""What its thread is called."""

A = TypeVar("A")

Services: TypeAlias = "Folder | Remote"
"""What commands call: with SERVO_URL a server, else the project in this folder."""

Label = Callable[[str, str | None], str]
"""What people type for a partition: of an asset key and a partition key."""

When = datetime | str | None
"""A time of the past or an event id; None is now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed(Generic[A]):
    """Items of a list, what the list says beside them, and where it goes on."""

    items: list[A]
    more: dict[str, Any]
    next_cursor: str | None


class Workplace(Protocol):
    """Who does the work: processes that were there before, or a worker that was started here (`embedded`)."""

    @property
    def embedded(self) -> bool: ...

    def alive(self) -> None:
        """See to it that work goes on; raises once it cannot. To be called again and again."""


def definition_of(asset: AssetView | AssetDetails) -> Partitions:
    """Which partitions an asset has, by what was answered about it."""
    from servo.partitions import Partitions  # noqa: PLC0415 (who prints JSON need not wait for calendars and zones)

    return Partitions.from_json({"dimensions": asset.partitions})


def read_ahead() -> None:
    """Load the database in a thread, while a command that only reads loads its other modules."""
    if server() is not None:
        return  # it has the database
    do_without_pandas()

    def load() -> None:
        with suppress(ImportError):  # the command meets it too, and reports it
            # By name, and nothing of ours: of two threads that import modules which need each other, one may be given
            # a module that is only half made.
            import_module("duckdb")

    # Nobody waits for it: a command that was refused is over at once (`servo.cli.main` takes nothing apart meanwhile).
    Thread(target=load, name=READ_AHEAD, daemon=True).start()


def server() -> str | None:
    """The address of the server that commands are to ask, if they are to ask one."""
    return os.environ.get("SERVO_URL") or None


def needs_folder() -> NoReturn:
    raise InvalidInput(
        "this command needs the project's folder, and SERVO_URL names a server", hint="run it there, without SERVO_URL"
    )


def settings(place: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of a folder's project; by default of the current one."""
    from servo.runtime.settings import load_settings  # noqa: PLC0415 (the ledger comes with it)

    return load_settings(place, environ)


def about_here(but: str | None = None) -> None:
    """Warn, with SERVO_URL, that a command is about this folder and not the server: all `but` a part of it."""
    url = server()
    if url is not None:
        what = "this is" if but is None else f"all but {but} is"
        logging.getLogger("servo.cli").warning("%s about this folder, not about %s (SERVO_URL)", what, url)


@contextmanager
def services(*, as_json: bool = False, create: bool = False, reading: bool = False) -> Iterator[Services]:
    """What a command calls: the services of the project in this folder, or of the server that SERVO_URL names.

    `reading`: it only reads, and the database is loaded meanwhile.
    """
    url = server()
    if reading:
        read_ahead()
    if url is None:
        with folder(as_json=as_json, create=create) as here:
            yield here
        return
    from servo.cli.remote import Remote  # noqa: PLC0415 (HTTP comes with it)

    show_warnings(as_json=as_json)
    with closing(Remote(url)) as there:
        yield there


@contextmanager
def folder(*, as_json: bool, create: bool = False, local: bool = False) -> Iterator[Folder]:
    """The services of the project in this folder; the options are those of `project`."""
    with project(as_json=as_json, create=create, local=local) as opened:
        from servo.cli.folder import Folder  # noqa: PLC0415 (all that answers and records comes with it)

        with closing(Folder(opened)) as here:
            yield here


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
    from servo.runtime.wiring import open_workspace  # noqa: PLC0415 (the ledger comes with it)

    show_warnings(as_json=as_json, timed=timed)
    if not quietly:
        about_here()
    with open_workspace(settings(), create=create) as opened:
        yield opened


@contextmanager
def service(*, as_json: bool) -> Iterator[Maintenance]:
    """The ledger and the projections of the project in the current folder."""
    from servo.runtime.maintenance import Maintenance  # noqa: PLC0415 (the ledger comes with it)

    with project(as_json=as_json, local=True) as opened:
        yield Maintenance(opened)


def actor() -> str:
    """The person at this machine: `person:` and their user name."""
    try:
        return f"person:{getpass.getuser()}"
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return f"person:{os.getuid()}"


def show_warnings(*, as_json: bool, timed: bool = False) -> None:
    """Warnings of Servo's own code go to stderr, a line each; `timed`: with the time in UTC, for what runs long."""
    logger = logging.getLogger("servo")
    if not logger.handlers:
        handler = logging.StreamHandler()
        plain = _Timed("%(asctime)s %(message)s") if timed else logging.Formatter("servo: warning: %(message)s")
        handler.setFormatter(_AsJson() if as_json else plain)
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)
        logger.propagate = False


class _Timed(logging.Formatter):
    """A line with the time in UTC before it."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 (logging's)
        return timed_at(datetime.fromtimestamp(record.created, UTC))


def timed_at(moment: datetime) -> str:
    """A time as it stands before a line of what runs long."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


class _AsJson(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({"warning": {"message": record.getMessage()}}, ensure_ascii=False)


class _Lean:
    """An import hook that hides pandas from Servo's own code, and from Arrow when Servo calls it.

    Arrow loads pandas at its first array, which takes longer than all else that a command does which only reads. Other
    importers, such as a project's own code, find it.
    """

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 (wherever it may be)
        target: ModuleType | None = None,  # noqa: ARG002
        /,
    ) -> ModuleSpec | None:
        if fullname == "pandas" and _importer().startswith("servo."):
            raise ImportError("nothing here needs it")
        return None


def _importer() -> str:
    """The module whose code caused an import. Arrow is compiled, and leaves no frame: then the caller of Arrow."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "") in (__name__, *_MACHINERY):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


_MACHINERY = ("importlib", "importlib._bootstrap", "importlib._bootstrap_external", "_frozen_importlib")


def do_without_pandas() -> None:
    """Hide pandas from here on, in this process. Servo's own code never imports it."""
    if "pandas" not in sys.modules and not any(isinstance(one, _Lean) for one in sys.meta_path):
        sys.meta_path.insert(0, _Lean())
