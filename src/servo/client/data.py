"""The data of assets, by a server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from servo.answers.data import Rows
from servo.client.asking import Noun, given
from servo.client.transport import path_of
from servo.errors import Conflict

__all__ = ["Data"]

_MOST = 10_000  # rows of one answer
_TRIES = 5


class Data(Noun):
    """`client.data`."""

    def read(
        self,
        asset: str,
        partitions: str | Sequence[str] = (),
        *,
        as_of: datetime | str | None = None,
        limit: int | None = None,
        **reading: Any,
    ) -> Rows:
        """Exactly what is current, or was as of then; of all partitions that are there, if none are given."""
        named = [partitions] if isinstance(partitions, str) else list(partitions)
        return self._all(given(asset=asset, partition=named, as_of=as_of) | reading, limit)

    def staged(self, checkpoint_id: str, *, limit: int | None = None, **reading: Any) -> Rows:
        """What waits to be approved, or did."""
        return self._all({"checkpoint": checkpoint_id, **reading}, limit)

    def _all(self, query: dict[str, Any], limit: int | None) -> Rows:
        """All of it, however many answers that takes; begun anew where something else became current meanwhile."""
        for _ in range(_TRIES):
            found = self._once(query, limit)
            if found is not None:
                return found
        raise Conflict("what is current changes faster than it can be read", hint="ask with as_of")

    def _once(self, query: dict[str, Any], limit: int | None) -> Rows | None:
        rows: list[list[Any]] = []
        first: Rows | None = None
        while True:
            size = _MOST if limit is None else min(_MOST, limit - len(rows))
            page: Rows = self._ask.one(path_of("data"), Rows, {**query, "limit": size, "offset": len(rows)})
            first = first or page
            if page.materializations != first.materializations:
                return None
            rows += page.rows
            if page.total_rows is not None or len(rows) == limit:
                # Who asked for no more than there are cannot tell whether there are more.
                known = page.total_rows if limit is None or len(rows) < limit else None
                return msgspec.structs.replace(first, rows=rows, total_rows=known)
