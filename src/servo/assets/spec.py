"""What an asset is, as data: everything that was declared about it, without the function that computes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from servo.assets.checks import Check
from servo.errors import InvalidDefinition, InvalidInput
from servo.ids import AssetKey
from servo.partitions import UNPARTITIONED, Partitions
from servo.partitions.mappings import Mapping as PartitionMapping

_OWN_CODE = str(Path(__file__).parent.parent)
_DEADLINES = ("expire", "escalate")
ADMIN = "admin"
"""The role that approves where no other is named."""


def require(good: bool, what: str, value: object, hint: str) -> None:
    """Refuse a value that a declaration cannot have."""
    if not good:
        raise InvalidInput(f"{what} cannot be {value!r:.80}", hint=hint)


def require_selects(what: str, select: object, example: str) -> None:
    """Refuse a selection that is no text, or an empty one."""
    if not isinstance(select, str) or not select.strip():
        raise InvalidInput(f"{what} selects nothing", hint=f'write select="{example}"')


def require_tags(what: str, tags: object, kind: type[Mapping[Any, Any]] = Mapping) -> None:
    """Refuse tags that do not map texts to texts."""
    good = isinstance(tags, kind) and all(isinstance(one, str) for pair in tags.items() for one in pair)
    require(good, f"{what}: tags", tags, 'write tags={"team": "sales"}')


class Source(msgspec.Struct, frozen=True):
    """Where something was declared."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream of an asset. A graph turns the name into a key and fills in the mapping where none was given."""

    upstream: str
    parameter: str | None = None  # of the function; None for a dependency without a DataFrame
    mapping: PartitionMapping | None = None


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often to try, and how long to wait before attempt n + 1: `delay · factor^(n-1)`, at most `cap`.

    `jitter` is in percent of the wait. `on` names the exceptions that deserve another attempt, as classes or as
    `module.Class`; empty means all.
    """

    attempts: int = 1
    delay: timedelta = timedelta(seconds=30)
    factor: int = 2
    cap: timedelta = timedelta(seconds=900)
    jitter: int = 10
    on: tuple[type[BaseException] | str, ...] = ()

    def __post_init__(self) -> None:
        attempts, factor, jitter = self.attempts, self.factor, self.jitter
        require(type(attempts) is int and attempts >= 1, "retry: attempts", attempts, "give 1 or more")
        require(type(factor) is int and factor >= 1, "retry: factor", factor, "give a whole number from 1")
        require(type(jitter) is int and 0 <= jitter <= 100, "retry: jitter", jitter, "give percent, 0 to 100")
        for name in ("delay", "cap"):
            wait = getattr(self, name)
            good = isinstance(wait, timedelta) and wait >= timedelta(0)
            require(good, f"retry: {name}", wait, "give a timedelta that is not negative")
        given = self.on if isinstance(self.on, tuple | list) else (self.on,)
        # Names, so that what was declared is data: it is stored and compared.
        msgspec.structs.force_setattr(self, "on", tuple(map(_exception_name, given)))

    def deserves(self, error: BaseException) -> bool:
        """Whether this error is one of those that another attempt may help."""
        return not self.on or any(_exception_name(kind) in self.on for kind in type(error).__mro__)


def _exception_name(given: object) -> str:
    if isinstance(given, str):
        return given if "." in given else f"builtins.{given}"
    if isinstance(given, type):
        return f"{given.__module__}.{given.__qualname__}"
    raise InvalidInput(f"retry: {given!r:.80} is not an exception class", hint="write on=(OSError,)")


class Approval(msgspec.Struct, frozen=True):
    """Who must agree before an output is published, how long they have, and what happens then.

    At the deadline it expires, and the task fails; or it is escalated: handed to `escalate_to`, to wait on.
    """

    approvers: str
    four_eyes: bool = False
    deadline: timedelta | None = None
    on_deadline: str = "expire"
    escalate_to: str = ADMIN

    def __post_init__(self) -> None:
        for name, hint in ((self.escalate_to, 'escalate_to="cfo"'), (self.approvers, 'Approval("finance")')):
            if not isinstance(name, str) or not name:
                raise InvalidInput(f"approval: {name!r:.80} names nobody", hint=f"write {hint}")
        deadline = self.deadline
        positive = deadline is None or (isinstance(deadline, timedelta) and deadline > timedelta(0))
        require(positive, "approval: deadline", deadline, "give a positive timedelta")
        hint = f"write {' or '.join(_DEADLINES)}"
        require(self.on_deadline in _DEADLINES, "approval: on_deadline", self.on_deadline, hint)


class AssetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An asset as declared."""

    key: str  # namespace/name
    partitions: Partitions = UNPARTITIONED
    dependencies: tuple[Dependency, ...] = ()
    code_version: str
    batch: bool = False
    sample: bool = True  # whether partitions of a batch are now and then computed alone and compared
    strict: bool = False  # whether rows of partitions that were not asked for are an error
    checks: tuple[Check, ...] = ()
    retry: Retry = Retry()
    approval: Approval | None = None
    freshness: timedelta | None = None
    group: str | None = None
    owners: tuple[str, ...] = ()
    tags: dict[str, str] = {}
    description: str | None = None
    renamed_from: str | None = None
    source: Source
    # Digests of what a derived code version covers, by file and name (`helpers.py:clean`); empty where it was given.
    reached: dict[str, str] = {}
    # What the first formula makes of the function; None where the code version was given.
    first_version: str | None = None

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]

    @property
    def display(self) -> str:
        """As people see it."""
        return AssetKey.parse(self.key).display


# ── what is wrong, and where ─────────────────────────────────────────────────────────────────────────────────────


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error in a declaration, and where it stands."""

    message: str
    hint: str | None = None
    source: Source | None = None

    def error(self) -> InvalidDefinition:
        return InvalidDefinition(f"{self.source}: {self.message}" if self.source else self.message, hint=self.hint)


class Collected(msgspec.Struct):
    """Declarations of a project, and the problems with them."""

    declared: list[Any] = []
    problems: list[Problem] = []


_collected: ContextVar[Collected | None] = ContextVar("servo_collected", default=None)


@contextmanager
def collecting() -> Iterator[Collected]:
    """Gather what is declared meanwhile, and all problems instead of raising the first."""
    collected = Collected()
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)


def declare(declared: Any) -> None:
    """Hand a declaration to `collecting`: a name may be used again, and what it stood for is still declared."""
    collected = _collected.get()
    if collected is not None:
        collected.declared.append(declared)


def report(problem: Problem) -> None:
    """Raise a problem, or hand it to `collecting`."""
    collected = _collected.get()
    if collected is None:
        raise problem.error()
    collected.problems.append(problem)


def called_from() -> Source:
    """The nearest line outside Servo that led here."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN_CODE):
        frame = frame.f_back
    return Source("<unknown>", 0) if frame is None else Source(frame.f_code.co_filename, frame.f_lineno)
