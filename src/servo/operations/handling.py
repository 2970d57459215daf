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

from servo.operations.operation import Change, ListQuestion, Operation, Question
from servo.operations.outside import Outside
from servo.operations.state import State

__all__ = ["Found", "Handler", "Lister", "answers", "decides", "handler_of", "lists"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Evidence = Callable[[Outside, State, Any], Any]


class Found(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Items of a list, at least one more than were asked for if there are more, and what is said beside them.

    `next_place`: where the list goes on, of one that knows it better than by its last item: it still grows at its end,
    or finds no more than were asked for.
    """

    items: Sequence[T]
    more: dict[str, Any] = {}
    next_place: Any = None


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """The function of an operation, and the evidence that it wants."""

    function: Callable[..., Any]
    evidence: Evidence | None = None

    def __call__(self, outside: Outside, state: State, request: Operation[Any]) -> Any:
        if self.evidence is None:
            return self.function(state, request)
        return self.function(state, request, self.evidence(outside, state, request))


class Lister(msgspec.Struct, frozen=True, kw_only=True):
    """How a list is found: the function, where an item stands in the order of the list, and how it is shown."""

    function: Callable[[State, Any, Any], Found[Any]]
    place: Callable[[Any], Any]
    place_type: Any
    show: Callable[[Any], Any] = lambda item: item


_HANDLERS: dict[type[Any], Handler | Lister] = {}


def decides(kind: type[Change[Any]], *, evidence: Evidence | None = None) -> Callable[[F], F]:
    """Declare the function that decides a change: `(state, request) -> Decision`."""
    return _declare(kind, lambda function: Handler(function=function, evidence=evidence))


def answers(kind: type[Question[Any]], *, evidence: Evidence | None = None) -> Callable[[F], F]:
    """Declare the function that answers a question: `(state, request) -> answer`."""
    return _declare(kind, lambda function: Handler(function=function, evidence=evidence))


def lists(
    kind: type[ListQuestion[Any]],
    *,
    place: Callable[[Any], Any],
    place_type: Any,
    show: Callable[[Any], Any] = lambda item: item,
) -> Callable[[F], F]:
    """Declare the function that finds a list after a place (None: all of it): `(state, request, after) -> Found`."""
    return _declare(kind, lambda function: Lister(function=function, place=place, place_type=place_type, show=show))


def _declare(kind: type[Any], made: Callable[[Any], Handler | Lister]) -> Callable[[F], F]:
    def declare(function: F) -> F:
        _HANDLERS[kind] = made(function)
        return function

    return declare


def handler_of(kind: type[Operation[Any]]) -> Handler | Lister | None:
    """The handler of an operation; None for one whose noun has no module of handlers yet."""
    if kind not in _HANDLERS:
        module = f"{kind.__module__.rpartition('.')[0]}.handlers"
        try:
            import_module(module)
        except ModuleNotFoundError as problem:
            if problem.name != module:
                raise
    return _HANDLERS.get(kind)
