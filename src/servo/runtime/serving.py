"""Operations that services of the project answer, until they are functions over a state like the others.

A noun's services are in `servo.runtime.services.<noun>`, which is imported when one of its operations is performed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import msgspec

from servo.events import RecordedEvent
from servo.operations.operation import Change, ListQuestion, Operation, Question
from servo.runtime.user_code import UserCode
from servo.runtime.wiring import Project

__all__ = ["Call", "Service", "serves_change", "serves_list", "serves_question", "service_of"]

F = TypeVar("F", bound=Callable[..., Any])


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request for a change, for the service that does it.

    `before` is to be called once the request is known to be sound and nothing is written yet; it may refuse.
    """

    project: Project
    user_code: UserCode
    actor: str
    key: str | None
    before: Callable[[], None] = lambda: None


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """The function of an operation, and how its recorded answer is completed.

    `in_folder`: the function for a command in the project's folder, where that looks at the folder's files too.
    Of a list: `place` says where an item stands in its order, and `show` what of it is shown. Of a change: `finish`
    takes from the event what that says better than a copy; `afterwards` adds what is known only after it is done, and
    is recorded as whoever says it first says it; `known`: the function itself gives what it made under a
    key, and only what makes nothing must be remembered for it; `keeps_key`: it remembers its key in every case.
    """

    function: Callable[..., Any]
    in_folder: Callable[..., Any] | None = None
    place: Callable[[Any], Any] | None = None
    place_type: Any = None
    show: Callable[[Any], Any] = lambda item: item
    finish: Callable[[Project, dict[str, Any], RecordedEvent], dict[str, Any]] | None = None
    afterwards: Callable[[Project, dict[str, Any]], dict[str, Any]] | None = None
    known: bool = False
    keeps_key: bool = False

    def reading(self, *, in_folder: bool) -> Callable[..., Any]:
        """The function that answers a question."""
        return self.in_folder if in_folder and self.in_folder is not None else self.function


_SERVICES: dict[type[Any], Service] = {}


def serves_question(kind: type[Question[Any]], *, in_folder: Callable[..., Any] | None = None) -> Callable[[F], F]:
    """Declare what answers a question: `(project, request, as_of) -> answer`."""
    return _declare(kind, in_folder=in_folder)


def serves_list(
    kind: type[ListQuestion[Any]],
    *,
    place: Callable[[Any], Any],
    place_type: Any,
    show: Callable[[Any], Any] = lambda item: item,
    in_folder: Callable[..., Any] | None = None,
) -> Callable[[F], F]:
    """Declare what finds a list after a place: `(project, request, after, as_of) -> Found`."""
    return _declare(kind, place=place, place_type=place_type, show=show, in_folder=in_folder)


def serves_change(kind: type[Change[Any]], **how: Any) -> Callable[[F], F]:
    """Declare what does a change: `(call, request) -> answer`."""
    return _declare(kind, **how)


def _declare(kind: type[Any], **how: Any) -> Callable[[F], F]:
    def declare(function: F) -> F:
        _SERVICES[kind] = Service(function=function, **how)
        return function

    return declare


def service_of(kind: type[Operation[Any]]) -> Service:
    if kind not in _SERVICES:
        noun = kind.__module__.split(".")[2]
        import_module(f"servo.runtime.services.{noun}")
    return _SERVICES[kind]
