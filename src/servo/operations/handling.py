"""The function that answers or decides each operation, what it may ask of the world outside, and what it decides.

A noun's handlers are in `servo.operations.<noun>.handlers`, which is imported when one of its operations is performed:

    @decides(PauseSchedule)
    def pause(state: State, request: PauseSchedule) -> Decision[Changed]: ...

    @answers(GetSchedule)
    def get(state: State, request: GetSchedule) -> ScheduleView: ...

    @lists(ListSchedules, place=lambda schedule: schedule.name, place_type=str)
    def list_all(state: State, request: ListSchedules, after: str | None) -> Found[ScheduleView]: ...

What must be gathered from outside first (what user code says, whether staged data is intact) is evidence: a function
of the outside world, the state and the request, whose result is the handler's last argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from servo.answers.runs import Record
from servo.assets.evaluation import Evaluation, Message
from servo.controllers.automation_boards import SensorState
from servo.errors import AppendConflict, Conflict, IdempotencyMismatch
from servo.events import RecordedEvent
from servo.events.definitions import ScheduleDefinition
from servo.events.fact import Fact
from servo.events.model import (
    DefinitionsDeployed,
    DynamicPartitionsChanged,
    MaterializationPublished,
    PartitionsMarked,
    RolledBack,
    TaskFinished,
)
from servo.lineage.report import Report
from servo.operations.operation import Change, ListQuestion, Operation, Question
from servo.status.state import State

if TYPE_CHECKING:
    from servo.execution.storage import ParquetStorage


class UserCode(Protocol):
    """The project's own functions of schedules and sensors, as the process that performs an operation asks them."""

    def ask_schedule(self, definition: ScheduleDefinition, at: datetime) -> Evaluation | None:
        """What the function of a schedule answers for a moment; None where it cannot be called here."""

    def ask_sensor(self, sensor: SensorState, message: Message | None) -> Evaluation:
        """What a sensor answers, about a message or about its cursor; nothing is recorded."""


class Outside(UserCode, Protocol):
    """User code, storage and the clock; what is asked here may take long or fail."""

    intact: set[str]
    """The checkpoints whose staged files this request has found whole."""

    def now(self) -> datetime:
        """The time it is, also where the state is of the past."""

    @property
    def storage(self) -> ParquetStorage:
        """Where the files of materializations are, published or staged."""

    def keep_cited(self, report: Report) -> None:
        """Have vacuum spare what a report cites, from here on."""

    def run_logs(self, run_id: str, task_key: str | None) -> Iterator[Record]:
        """What the tasks of a run have said so far, oldest first: all, or one of them."""

    def trace(self, name: str, **attributes: Any) -> str | None:
        """Record a span of this name; the `traceparent` by which its trace goes on. None where nothing is traced."""

    def expire_checkpoint(self, checkpoint_id: str) -> None:
        """Record that a checkpoint has expired, if its deadline has passed."""

    def advance_run(self, run_id: str) -> None:
        """Record at once what follows for a run from what is recorded, as the control loop would."""


A = TypeVar("A")


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a thing that a decision was made on."""

    name: str
    version: int
    what: str = "version"


class Decision(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    """Facts and their answer. Without facts there is nothing to do, and it is answered that it is so already.

    The facts are recorded only if nothing that matters has happened since the state was taken; else the state is taken
    and the change decided again. What matters is any event about `subjects`, or any event for which `conflicts` holds.
    `begins`: the subject that the facts begin. If anything was ever recorded about it, that matters too, and the next
    state says so (`State.begun`): a change that makes something new need not look whether it is there.
    With none of these, the facts' own idempotency keys decide.

    `main`: which of the facts the answer is about. `seen`: if the thing has another version by the time that it is
    decided again, somebody else changed it, and that is a conflict. `recorded`: the event that did the same before;
    `note`: an earlier version recorded it without the words of the request, which are remembered from here on.
    """

    answer: A
    facts: Sequence[Fact] = ()
    subjects: frozenset[str] | None = None
    conflicts: Callable[[RecordedEvent], bool] | None = None
    begins: str | None = None
    main: int = 0
    seen: Seen | None = None
    recorded: str | None = None
    note: bool = False


_CHANGING_PARTITIONS = frozenset(
    kind.event_type
    for kind in (
        DefinitionsDeployed,
        DynamicPartitionsChanged,
        MaterializationPublished,
        PartitionsMarked,
        RolledBack,
        TaskFinished,
    )
)


def changes_partitions(event: RecordedEvent) -> bool:
    """Whether an event may change which partitions there are, or what is current of them."""
    return event.event_type in _CHANGING_PARTITIONS


def require_version(seen: Seen, expected: int | None) -> None:
    """Refuse a change of a thing that is not at the expected version."""
    if expected is not None and seen.version != expected:
        raise AppendConflict(
            f"{seen.name} is at {seen.what} {seen.version}, not at {expected} as expected",
            expected=expected,
            actual=seen.version,
            hint="somebody else changed it: look again",
        )


def other_request(key: str, what: str) -> IdempotencyMismatch:
    return IdempotencyMismatch(
        f"the idempotency key {key!r:.80} was used for another request, {what}",
        hint="give this one another key",
        idempotency_key=key,
    )


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Evidence = Callable[[Outside, State, Any], Any]
Recall = Callable[[State, dict[str, Any], RecordedEvent], dict[str, Any]]
Afterwards = Callable[[Outside, State, dict[str, Any]], dict[str, Any]]
FollowUp = Callable[[State, State, Any, Any], Decision[Any] | None]
GivenUp = Callable[[Any], Conflict]


class Found(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Items of a list, at least one more than were asked for if there are more, and what is said beside them.

    `next_place`: where the list goes on, of one that knows it better than by its last item: it still grows at its end,
    or finds no more than were asked for.
    """

    items: Sequence[T]
    more: dict[str, Any] = {}
    next_place: Any = None


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """The function of an operation, and the evidence that it wants.

    Of a change: `recall` completes the recorded answer with what the event of the change says better than a copy, or
    makes it where an earlier version recorded none; `afterwards` adds what is known only once the change is recorded,
    and is recorded as the first who says it says it. Both take and give the answer as plain fields. `follow_up` decides
    what more is to be recorded, once the change is, of things that others added while it was decided: given the state
    that it was decided on, the newest one, the request and the answer so far. `given_up`: the conflict where others
    were first again and again.
    """

    function: Callable[..., Any]
    evidence: Evidence | None = None
    recall: Recall | None = None
    afterwards: Afterwards | None = None
    follow_up: FollowUp | None = None
    given_up: GivenUp | None = None

    def __call__(self, outside: Outside, state: State, request: Operation[Any], *after: Any) -> Any:
        """The answer or decision; of a list, `after` is the place that it goes on from."""
        evidence = () if self.evidence is None else (self.evidence(outside, state, request),)
        return self.function(state, request, *after, *evidence)


class Lister(Handler, frozen=True, kw_only=True):
    """How a list is found: the function, where an item stands in the order of the list, and how it is shown."""

    place: Callable[[Any], Any]
    place_type: Any
    show: Callable[[Any], Any] = lambda item: item

    def __call__(self, outside: Outside, state: State, request: Operation[Any], *after: Any) -> Found[Any]:
        found: Found[Any] = Handler.__call__(self, outside, state, request, *after)
        return found


_HANDLERS: dict[type[Any], Handler] = {}


def decides(kind: type[Change[Any]], **options: Any) -> Callable[[F], F]:
    """Declare the function that decides a change: `(state, request) -> Decision`. `options`: fields of `Handler`."""
    return _declare(kind, Handler, options)


def answers(kind: type[Question[Any]], *, evidence: Evidence | None = None) -> Callable[[F], F]:
    """Declare the function that answers a question: `(state, request) -> answer`."""
    return _declare(kind, Handler, {"evidence": evidence})


def lists(
    kind: type[ListQuestion[Any]], *, place: Callable[[Any], Any], place_type: Any, **options: Any
) -> Callable[[F], F]:
    """Declare the function that finds a list after a place (None: all of it): `(state, request, after) -> Found`."""
    return _declare(kind, Lister, {"place": place, "place_type": place_type, **options})


def _declare(kind: type[Any], handler: type[Handler], options: dict[str, Any]) -> Callable[[F], F]:
    def declare(function: F) -> F:
        _HANDLERS[kind] = handler(function=function, **options)
        return function

    return declare


def handler_of(kind: type[Operation[Any]]) -> Handler:
    """What decides a change, answers a question or finds the items of a list."""
    # Asked every time: where another thread is at this import, it waits until all of the module is there.
    import_module(f"{kind.__module__.rpartition('.')[0]}.handlers")
    return _HANDLERS[kind]


def lister_of(kind: type[ListQuestion[Any]]) -> Lister:
    """What finds the items of a list."""
    lister = handler_of(kind)
    assert isinstance(lister, Lister)
    return lister
