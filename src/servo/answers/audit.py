"""Audit reports that were checked."""

from __future__ import annotations

import msgspec

from servo.lineage.report import Fault, Report


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was found wrong with a report, and whether the ledger was asked as well."""

    report_hash: str
    events: int
    with_ledger: bool
    faults: list[Fault]

    @property
    def valid(self) -> bool:
        return not self.faults


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Which report was checked, and what was found wrong with it."""

    valid: bool
    report_hash: str
    asset: str
    partition: str
    materialization: str
    workspace: str
    generated_at: str
    events: int
    with_ledger: bool
    faults: list[Fault]

    @classmethod
    def of(cls, report: Report, found: Verified) -> Verdict:
        return cls(
            valid=found.valid,
            report_hash=report.report_hash,
            asset=report.asset,
            partition=report.partition,
            materialization=report.materialization,
            workspace=f"{report.workspace.tenant}/{report.workspace.name}",
            generated_at=report.generated_at,
            events=found.events,
            with_ledger=found.with_ledger,
            faults=found.faults,
        )
