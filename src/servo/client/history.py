"""Where data came from, what it was before, and what people decided about it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from servo.answers.checkpoints import Decided
from servo.client.asking import Noun, given
from servo.client.rows import Row
from servo.client.transport import path_of

__all__ = ["Audit", "Checkpoints"]


class Checkpoints(Noun):
    """`client.checkpoints`."""

    def list(
        self,
        *,
        status: str | None = None,
        asset: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
        **asked: Any,
    ) -> Iterator[Row]:
        """Checkpoints, newest first; `status="REQUESTED"`: those that wait."""
        query = given(status=status, asset=asset, run_id=run_id, limit=limit)
        return self._ask.all(path_of("checkpoints"), dict, query | asked)

    def get(self, checkpoint_id: str, **reading: Any) -> Row:
        """What is to be decided."""
        return self._ask.one(path_of("checkpoints", checkpoint_id), dict, reading)

    def approve(
        self,
        checkpoint_id: str,
        *,
        reason: str | None = None,
        content_hash: str | None = None,
        idempotency_key: str | None = None,
    ) -> Decided:
        """Publish exactly what was staged. It is decided once."""
        body = given(reason=reason, content_hash=content_hash)
        path = path_of("checkpoints", checkpoint_id, "approve")
        return self._ask.change("POST", path, Decided, body, key=idempotency_key)

    def reject(self, checkpoint_id: str, *, reason: str, idempotency_key: str | None = None) -> Decided:
        """Publish nothing: the task fails with the reason."""
        path = path_of("checkpoints", checkpoint_id, "reject")
        return self._ask.change("POST", path, Decided, {"reason": reason}, key=idempotency_key)


class Audit(Noun):
    """`client.audit`."""

    def report(self, asset: str, partition: str = "", **reading: Any) -> dict[str, Any]:
        """How a partition came about, proven by the ledger's own events; to be kept as it is, as JSON."""
        query = {"asset": asset, "partition": partition, **reading}
        return self._ask.one(path_of("audit", "report"), dict[str, Any], query)

    def keep(self, asset: str, partition: str = "", *, as_of: datetime | str | None = None) -> dict[str, Any]:
        """The report, and vacuum spares the data that it cites from now on. Takes the role `operator`."""
        body = {"asset": asset, "partition": partition}
        body |= given(as_of=as_of if as_of is None or isinstance(as_of, str) else as_of.isoformat())
        found: dict[str, Any] = self._ask.plain(path_of("audit", "reports"), body)
        return found

    def verify(self, report: dict[str, Any]) -> dict[str, Any]:
        """What a report does not prove itself, and what this ledger does not confirm."""
        found: dict[str, Any] = self._ask.plain(path_of("audit", "verify"), report)
        return found
