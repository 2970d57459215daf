"""The data of assets, by a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import msgspec

from servo.answers.data import Rows
from servo.client.performing import Noun, Reading, answer
from servo.errors import Conflict
from servo.operations.data.requests import MOST_ROWS, ReadData

__all__ = ["Data"]

_TRIES = 5


class Data(Noun):
    """`client.data`."""

    def read(
        self,
        asset: str,
        partitions: str | Sequence[str] = (),
        *,
        limit: int | None = None,
        **reading: Unpack[Reading],
    ) -> Rows:
        """Exactly what is current, or was as of then; of all partitions that are there, if none are given."""
        named = (partitions,) if isinstance(partitions, str) else tuple(partitions)
        return self._all(ReadData(asset=asset, partition=named), limit, reading)

    def staged(self, checkpoint_id: str, *, limit: int | None = None, **reading: Unpack[Reading]) -> Rows:
        """What waits to be approved, or did."""
        return self._all(ReadData(checkpoint=checkpoint_id), limit, reading)

    def _all(self, request: ReadData, limit: int | None, reading: Reading) -> Rows:
        """All of it, however many answers that takes; begun anew where something else became current meanwhile."""
        for _ in range(_TRIES):
            found = self._once(request, limit, reading)
            if found is not None:
                return found
        raise Conflict("what is current changes faster than it can be read", hint="ask with as_of")

    def _once(self, request: ReadData, limit: int | None, reading: Reading) -> Rows | None:
        rows: list[list[Any]] = []
        first: Rows | None = None
        while True:
            size = MOST_ROWS if limit is None else min(MOST_ROWS, limit - len(rows))
            wanted = msgspec.structs.replace(request, limit=size, offset=len(rows))
            page = answer(self._ask, wanted, reading)
            first = first or page
            if page.materializations != first.materializations:
                return None
            rows += page.rows
            if page.total_rows is not None or len(rows) == limit:
                # Who asked for no more than there are cannot tell whether there are more.
                known = page.total_rows if limit is None or len(rows) < limit else None
                return msgspec.structs.replace(first, rows=rows, total_rows=known)
