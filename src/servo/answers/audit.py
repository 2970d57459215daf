"""Audit reports that were checked."""

from __future__ import annotations

import msgspec

from servo.lineage.proof import Fault


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was found wrong with a report, and whether the ledger was asked as well."""

    report_hash: str
    events: int
    with_ledger: bool
    faults: list[Fault]

    @property
    def valid(self) -> bool:
        return not self.faults
