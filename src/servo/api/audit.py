"""The routes of audit reports."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from litestar import Controller, Response, get, post
from msgspec import Meta

from servo.api.desk import AtDesk, plain
from servo.api.inputs import Reading
from servo.api.limits import read_body
from servo.api.operations import operation
from servo.lineage.report import Report, parse
from servo.runtime.audits import Audits

__all__ = ["AuditRoutes"]

_REPORT_BYTES = 16 * 1024 * 1024


class ReportAsked(Reading, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asset: Annotated[str, Meta(description="`namespace/name` or `name`.", max_length=500)]
    partition: Annotated[str, Meta(description="Which; empty for an asset without.", max_length=4_000)] = ""


class AuditRoutes(Controller):
    path = "/audit"
    tags = ["audit"]

    @get(
        "/report",
        opt=operation(
            "viewer",
            answers=Report,
            query=ReportAsked,
            refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY),
        ),
    )
    async def report(self, desk: AtDesk) -> Response[bytes]:
        """How the current materialization of a partition came about, proven by the ledger's own events.

        `data` is the report itself, to be kept as a file and verified later. Nothing is recorded, and vacuum is not
        told to spare what it cites: `servo audit report` does that.
        """
        asked = desk.query(ReportAsked)
        return await desk.one(
            asked,
            lambda here: Audits(here.project).report(asked.asset, asked.partition, as_of=here.as_of, keep=False),
        )

    @post(
        "/verify",
        status_code=HTTPStatus.OK,
        request_max_body_size=_REPORT_BYTES,
        opt=operation("viewer", shape="plain", body=Report),
    )
    async def verify(self, desk: AtDesk) -> Response[bytes]:
        """Say what the report in the body does not prove itself, and what this ledger does not confirm."""
        sent = await read_body(desk.request, most=_REPORT_BYTES)

        def work() -> dict[str, Any]:
            report = parse(sent)
            found = Audits(desk.project).verify(report)
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

        return plain(await desk.threads.answer(work))
