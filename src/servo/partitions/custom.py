"""The mapping that a project's own function makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from servo.errors import InvalidPartition
from servo.partitions.definitions import Partitions
from servo.partitions.links import misfit
from servo.partitions.mapping import Mapping, Resolve
from servo.partitions.sets import PartitionSet

__all__ = ["Custom"]


@dataclass(frozen=True, slots=True, init=False)
class Custom(Mapping):
    """A function `(asked, upstream) -> PartitionSet`, named as `module:function`, and one for the other direction.

    It must give a set what it gives its parts together. Without a function for the other direction,
    `(changed, downstream) -> PartitionSet`, that is found by asking for parts of what may be asked for.
    """

    kind = "custom"
    function: str
    reverse: str | None
    resolve: Resolve | None = field(compare=False, repr=False)

    def __init__(
        self,
        function: str | Callable[..., PartitionSet],
        reverse: str | Callable[..., PartitionSet] | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        given = {
            _reference(each): each for each in (function, reverse) if each is not None and not isinstance(each, str)
        }
        set_field = object.__setattr__
        set_field(self, "function", _reference(function))
        set_field(self, "reverse", None if reverse is None else _reference(reverse))
        set_field(self, "resolve", given.__getitem__ if given and resolve is None else resolve)

    def check(self, upstream: Partitions, downstream: Partitions) -> None:
        self._call(self.function, downstream.empty(), upstream)

    def upstream(self, asked: PartitionSet, upstream: Partitions, now: datetime) -> PartitionSet:  # noqa: ARG002
        return self._call(self.function, asked, upstream)

    def downstream(self, changed: PartitionSet, downstream: Partitions, now: datetime) -> PartitionSet:
        if self.reverse is not None:
            return self._call(self.reverse, changed, downstream)
        found = downstream.empty()
        waiting = [downstream.begun(now)] if changed else []
        while waiting:
            some = waiting.pop()
            total = some.count
            if total and self._call(self.function, some, changed.partitions) & changed:
                if total == 1:
                    found = found | some
                else:
                    waiting += [some.slice(0, total // 2), some.slice(total // 2, total)]
        return found

    def bound(self, resolve: Resolve) -> Custom:
        return Custom(self.function, self.reverse, resolve) if self.resolve is None else self

    def _call(self, reference: str, given: PartitionSet, target: Partitions) -> PartitionSet:
        if self.resolve is None:
            raise misfit(
                self.kind, f"the function {reference} was not loaded", "bind the mapping to the project's modules"
            )
        answer = self.resolve(reference)(given, target)
        if not isinstance(answer, PartitionSet) or answer.partitions != target:
            raise misfit(
                self.kind, f"{reference} returned {answer!r:.60}", "return a set of the definition that it was given"
            )
        return answer

    def to_json(self) -> dict[str, Any]:
        reverse = {} if self.reverse is None else {"reverse": self.reverse}
        return {"kind": self.kind, "function": self.function, **reverse}


def _reference(function: str | Callable[..., PartitionSet]) -> str:
    if not isinstance(function, str):
        return f"{function.__module__}:{function.__qualname__}"
    module, colon, name = function.partition(":")
    if not (module and colon and name):
        raise InvalidPartition(f"{function!r:.60} does not name a function", hint="write module:function")
    return function
