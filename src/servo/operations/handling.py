"""Which function answers or decides each operation.

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

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Generic, TypeVar

import msgspec

from servo.errors import Conflict
from servo.events import RecordedEvent
from servo.operations.decision import Decision
from servo.operations.operation import Change, ListQuestion, Operation, Question
from servo.operations.outside import Outside
from servo.status.state import State

__all__ = ["Found", "Handler", "Lister", "answers", "decides", "handler_of", "lister_of", "lists"]

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

    def __call__(self, outside: Outside, state: State, request: Operation[Any]) -> Any:
        if self.evidence is None:
            return self.function(state, request)
        return self.function(state, request, self.evidence(outside, state, request))


class Lister(msgspec.Struct, frozen=True, kw_only=True):
    """How a list is found: the function, where an item stands in the order of the list, and how it is shown."""

    function: Callable[..., Found[Any]]
    place: Callable[[Any], Any]
    place_type: Any
    show: Callable[[Any], Any] = lambda item: item
    evidence: Evidence | None = None

    def __call__(self, outside: Outside, state: State, request: Operation[Any], after: Any) -> Found[Any]:
        if self.evidence is None:
            return self.function(state, request, after)
        return self.function(state, request, after, self.evidence(outside, state, request))


_HANDLERS: dict[type[Any], Handler | Lister] = {}


def decides(
    kind: type[Change[Any]],
    *,
    evidence: Evidence | None = None,
    recall: Recall | None = None,
    afterwards: Afterwards | None = None,
    follow_up: FollowUp | None = None,
    given_up: GivenUp | None = None,
) -> Callable[[F], F]:
    """Declare the function that decides a change: `(state, request) -> Decision`."""
    return _declare(
        kind,
        lambda function: Handler(
            function=function,
            evidence=evidence,
            recall=recall,
            afterwards=afterwards,
            follow_up=follow_up,
            given_up=given_up,
        ),
    )


def answers(kind: type[Question[Any]], *, evidence: Evidence | None = None) -> Callable[[F], F]:
    """Declare the function that answers a question: `(state, request) -> answer`."""
    return _declare(kind, lambda function: Handler(function=function, evidence=evidence))


def lists(
    kind: type[ListQuestion[Any]],
    *,
    place: Callable[[Any], Any],
    place_type: Any,
    show: Callable[[Any], Any] = lambda item: item,
    evidence: Evidence | None = None,
) -> Callable[[F], F]:
    """Declare the function that finds a list after a place (None: all of it): `(state, request, after) -> Found`."""
    return _declare(
        kind,
        lambda function: Lister(function=function, place=place, place_type=place_type, show=show, evidence=evidence),
    )


def _declare(kind: type[Any], made: Callable[[Any], Handler | Lister]) -> Callable[[F], F]:
    def declare(function: F) -> F:
        _HANDLERS[kind] = made(function)
        return function

    return declare


def handler_of(kind: type[Operation[Any]]) -> Handler:
    """What decides a change or answers a question."""
    found = _declared(kind)
    assert isinstance(found, Handler)
    return found


def lister_of(kind: type[ListQuestion[Any]]) -> Lister:
    """What finds the items of a list."""
    found = _declared(kind)
    assert isinstance(found, Lister)
    return found


def _declared(kind: type[Operation[Any]]) -> Handler | Lister:
    # Asked every time: where another thread is at this import, it waits until all of the module is there.
    import_module(f"{kind.__module__.rpartition('.')[0]}.handlers")
    return _HANDLERS[kind]
