"""The route that verifies audit reports: a report is its body, as it was written."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from litestar import Controller, Response, post

from servo.api.limits import read_body
from servo.api.operations import operation
from servo.api.request_context import WithContext, plain
from servo.lineage.report import Report, parse
from servo.runtime.audits import Audits

__all__ = ["AuditRoutes"]

_REPORT_BYTES = 16 * 1024 * 1024


class AuditRoutes(Controller):
    path = "/audit"
    tags = ["audit"]

    @post(
        "/verify",
        status_code=HTTPStatus.OK,
        request_max_body_size=_REPORT_BYTES,
        opt=operation("viewer", shape="plain", body=Report),
    )
    async def verify(self, context: WithContext) -> Response[bytes]:
        """Say what the report in the body does not prove itself, and what this ledger does not confirm."""
        sent = await read_body(context.request, most=_REPORT_BYTES)

        def work() -> dict[str, Any]:
            report = parse(sent)
            found = Audits(context.project).verify(report)
            return {
                "valid": found.valid,
                "report_hash": report.report_hash,
                "asset": report.asset,
                "partition": report.partition,
                "materialization": report.materialization,
                "workspace": f"{report.workspace.tenant}/{report.workspace.name}",
                "generated_at": report.generated_at,
                "events": found.events,
                "with_ledger": found.with_ledger,
                "faults": [{"path": fault.path, "reason": fault.reason} for fault in found.faults],
            }

        return plain(await context.threads.answer(work))
