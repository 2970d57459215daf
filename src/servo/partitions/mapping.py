"""What every mapping can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, TypeAlias

from servo.partitions.definitions import Partitions
from servo.partitions.sets import PartitionSet

__all__ = ["Mapping", "Resolve", "described"]

# Finds the function that `module:function` names, whose code has this hash, where one is known.
Resolve: TypeAlias = Callable[[str, str | None], Callable[..., PartitionSet]]


class Mapping(ABC):
    """Which partitions of one definition belong to which of another."""

    __slots__ = ()
    kind: ClassVar[str]

    @abstractmethod
    def check(self, upstream: Partitions, downstream: Partitions) -> None:
        """Refuse two definitions that this mapping does not fit."""

    @abstractmethod
    def upstream(self, asked: PartitionSet, upstream: Partitions, now: datetime) -> PartitionSet:
        """The upstream partitions that `asked` reads."""

    @abstractmethod
    def downstream(self, changed: PartitionSet, downstream: Partitions, now: datetime) -> PartitionSet:
        """The downstream partitions that read some of `changed`."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The mapping as plain data."""

    def bound(self, resolve: Resolve) -> Mapping:  # noqa: ARG002 (only what is custom has something to find)
        """The same mapping, able to find the functions that it names."""
        return self


def described(kind: str, dimension: str | None) -> dict[str, Any]:
    """The data of a mapping that may name a downstream dimension."""
    return {"kind": kind} if dimension is None else {"kind": kind, "dimension": dimension}
