"""What looking for new rows asks of a table, whichever database it is in."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

__all__ = ["STATEMENT_SECONDS", "Row", "Table"]

STATEMENT_SECONDS = 10
Row = tuple[Any, ...]  # the growing column first


class Table(Protocol):
    """A table with a growing column, open for reading. Rows without a value in that column are not there."""

    @property
    def transactional(self) -> bool:
        """Whether several may write at the same time, so that a smaller value can be committed after a greater."""

    def greatest(self, after: Any) -> Any:
        """The greatest value, if it is greater than another one."""

    def writers(self) -> set[str]:
        """Who has begun to write and not ended."""

    def lasting_writers(self) -> set[str]:
        """The same, after giving those that end in a moment time to do so."""

    def snapshot(self) -> AbstractContextManager[object]:
        """All that is read in this block is of one moment."""

    def rows(self, *, limit: int, after: Any = None, until: Any = None, at: Any = None) -> list[Row]:
        """Rows in order: greater than one value, not greater than another; or those that have a value."""

    def count(self, at: Any) -> int:
        """How many rows have a value."""
