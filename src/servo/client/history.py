"""Where data came from, and what it was before."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from servo.client.asking import Noun, given
from servo.client.transport import path_of

__all__ = ["Audit"]


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
