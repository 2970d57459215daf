"""Where data came from, and what it was before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from servo import decoders
from servo.answers.backfills import Backfilled
from servo.answers.lineage import LineageGraph
from servo.client.asking import Noun, given
from servo.client.rows import Row
from servo.client.transport import path_of

__all__ = ["Audit", "Lineage", "Materializations"]


class Lineage(Noun):
    """`client.lineage`. All of it takes `depth`, `run`, `exact` and `as_of`."""

    def upstream(self, asset: str, partitions: Sequence[str] = (), **asked: Any) -> LineageGraph:
        """What partitions were made from, hop by hop; of all, if none are given."""
        return self._look("upstream", asset, partitions, **asked)

    def downstream(self, asset: str, partitions: Sequence[str] = (), **asked: Any) -> LineageGraph:
        return self._look("downstream", asset, partitions, **asked)

    def impact(self, asset: str, partitions: Sequence[str] = (), **asked: Any) -> LineageGraph:
        """What a change of them would reach, and how each of it stands now."""
        return self._look("impact", asset, partitions, **asked)

    def graph(self, asset: str | None = None, partitions: Sequence[str] = (), **asked: Any) -> LineageGraph:
        """Both directions in one; without an asset, the whole project."""
        return self._look("graph", asset, partitions, **asked)

    def at(self, as_of: datetime | str, asset: str, partitions: Sequence[str] = (), **asked: Any) -> LineageGraph:
        """The lineage as it was then; `direction` is upstream, downstream or both."""
        return self._look("at", asset, partitions, as_of=as_of, **asked)

    def invalidate(
        self,
        asset: str,
        partitions: Sequence[str] = (),
        *,
        reason: str,
        itself: bool = False,
        idempotency_key: str | None = None,
    ) -> Row:
        """Declare stale whatever was made from these partitions, at any distance."""
        body = {"asset": asset, "partitions": list(partitions), "reason": reason, "itself": itself}
        return self._ask.change("POST", path_of("lineage", "invalidate"), dict, body, key=idempotency_key)

    def rematerialize(
        self,
        asset: str,
        partitions: Sequence[str] = (),
        *,
        itself: bool = False,
        priority: int = 0,
        idempotency_key: str | None = None,
    ) -> Backfilled | None:
        """Compute anew whatever is stale of what was made from these, as a backfill; None: nothing is."""
        body = {"asset": asset, "partitions": list(partitions), "itself": itself, "priority": priority}
        path = path_of("lineage", "rematerialize")
        made: Row = self._ask.change("POST", path, dict, body, key=idempotency_key)
        return None if made["backfill_id"] is None else decoders.convert(made, Backfilled)

    def _look(self, way: str, asset: str | None, partitions: Sequence[str], **asked: Any) -> LineageGraph:
        query = given(asset=asset, partition=list(partitions), **asked)
        return self._ask.one(path_of("lineage", way), LineageGraph, query)


class Materializations(Noun):
    """`client.materializations`."""

    def list(self, asset: str, partition: str = "", *, limit: int | None = None, **reading: Any) -> Iterator[Row]:
        """Every version of a partition that was ever published, newest first."""
        query = given(asset=asset, partition=partition, limit=limit)
        return self._ask.all(path_of("materializations"), dict, query | reading)

    def rollback(
        self,
        asset: str,
        partitions: Sequence[str] = (),
        *,
        reason: str,
        to: str | None = None,
        idempotency_key: str | None = None,
    ) -> Row:
        """Make earlier ones current again: the one before each, or what `to` says."""
        body = {"asset": asset, "partitions": list(partitions), "reason": reason} | given(to=to)
        return self._ask.change("POST", path_of("materializations", "rollback"), dict, body, key=idempotency_key)


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
