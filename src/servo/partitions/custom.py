"""The mapping that a project's own function makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from servo.errors import InvalidPartition, ServoError
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

    `code` and `reverse_code` are hashes of what the functions say, filled in where the project is loaded: an edited
    function makes another mapping.
    """

    kind = "custom"
    function: str
    reverse: str | None
    code: str | None
    reverse_code: str | None
    resolve: Resolve | None = field(compare=False, repr=False)

    def __init__(
        self,
        function: str | Callable[..., PartitionSet],
        reverse: str | Callable[..., PartitionSet] | None = None,
        resolve: Resolve | None = None,
        *,
        code: str | None = None,
        reverse_code: str | None = None,
    ) -> None:
        given = {
            _reference(each): each for each in (function, reverse) if each is not None and not isinstance(each, str)
        }
        set_field = object.__setattr__
        set_field(self, "function", _reference(function))
        set_field(self, "reverse", None if reverse is None else _reference(reverse))
        set_field(self, "code", code)
        set_field(self, "reverse_code", reverse_code)
        set_field(self, "resolve", (lambda name, _: given[name]) if given and resolve is None else resolve)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of its functions."""
        return (self.function,) if self.reverse is None else (self.function, self.reverse)

    def require_found(self) -> None:
        """Raises where a function that it names is not here, or has other code."""
        self._found(self.function, self.code)
        if self.reverse is not None:
            self._found(self.reverse, self.reverse_code)

    def with_codes(self, code: str | None, reverse_code: str | None = None) -> Custom:
        """The same mapping, with the hashes of what its functions say."""
        return Custom(self.function, self.reverse, self.resolve, code=code, reverse_code=reverse_code)

    def check(self, upstream: Partitions, downstream: Partitions) -> None:
        self._call(self.function, self.code, downstream.empty(), upstream)

    def upstream(self, asked: PartitionSet, upstream: Partitions, now: datetime) -> PartitionSet:  # noqa: ARG002
        return self._call(self.function, self.code, asked, upstream)

    def downstream(self, changed: PartitionSet, downstream: Partitions, now: datetime) -> PartitionSet:
        if self.reverse is not None:
            return self._call(self.reverse, self.reverse_code, changed, downstream)
        found = downstream.empty()
        waiting = [downstream.begun(now)] if changed else []
        while waiting:
            some = waiting.pop()
            total = some.count
            if total and self._call(self.function, self.code, some, changed.partitions) & changed:
                if total == 1:
                    found = found | some
                else:
                    waiting += [some.slice(0, total // 2), some.slice(total // 2, total)]
        return found

    def bound(self, resolve: Resolve) -> Custom:
        if self.resolve is not None:
            return self
        return Custom(self.function, self.reverse, resolve, code=self.code, reverse_code=self.reverse_code)

    def _found(self, reference: str, code: str | None) -> Callable[..., PartitionSet]:
        if self.resolve is None:
            raise misfit(
                self.kind, f"the function {reference} was not loaded", "bind the mapping to the project's modules"
            )
        return self.resolve(reference, code)

    def _call(self, reference: str, code: str | None, given: PartitionSet, target: Partitions) -> PartitionSet:
        function = self._found(reference, code)
        try:
            answer = function(given, target)
        except ServoError:
            raise
        except Exception as problem:
            said = f"{reference} raised {type(problem).__name__}: {problem}"
            raise misfit(self.kind, said, "mend it; it must bear an empty set, too") from problem
        if not isinstance(answer, PartitionSet) or answer.partitions != target:
            raise misfit(
                self.kind, f"{reference} returned {answer!r:.60}", "return a set of the definition that it was given"
            )
        return answer

    def to_json(self) -> dict[str, Any]:
        known = {"reverse": self.reverse, "code": self.code, "reverse_code": self.reverse_code}
        said = {name: value for name, value in known.items() if value is not None}
        return {"kind": self.kind, "function": self.function, **said}


def _reference(function: str | Callable[..., PartitionSet]) -> str:
    if not isinstance(function, str):
        if not hasattr(function, "__qualname__"):
            raise InvalidPartition(
                f"{function!r:.60} has no name that a mapping could be known by", hint="give a function with `def`"
            )
        return f"{function.__module__}:{function.__qualname__}"
    module, colon, name = function.partition(":")
    if not (module and colon and name):
        raise InvalidPartition(f"{function!r:.60} does not name a function", hint="write module:function")
    return function
