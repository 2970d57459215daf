"""The route of audit reports that are to be proved later: vacuum spares what they cite."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

import msgspec
from litestar import Controller, Response, post
from msgspec import Meta

from servo.api.desk import AtDesk, plain
from servo.api.inputs import Text
from servo.api.operations import operation
from servo.lineage.report import Report
from servo.operations.moments import past_moment
from servo.runtime.audits import Audits

__all__ = ["KeptReportRoutes"]


class KeptReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asset: Text
    partition: Annotated[str, Meta(description="Which; empty for an asset without.", max_length=4_000)] = ""
    as_of: Annotated[str, Meta(description="A time or an event id.", max_length=64)] | None = None


class KeptReportRoutes(Controller):
    path = "/audit/reports"
    tags = ["audit"]

    @post(
        status_code=HTTPStatus.OK,
        opt=operation(
            "operator",
            shape="plain",
            answers=Report,
            body=KeptReport,
            example={"asset": "revenue", "partition": "2025-01-15"},
            refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY),
        ),
    )
    async def report(self, desk: AtDesk) -> Response[bytes]:
        """The report of `GET /audit/report`; and vacuum spares the data that it cites from now on.

        The ledger records nothing of it. Asked again, it cites the same.
        """
        asked = await desk.body(KeptReport)
        when = None if asked.as_of is None else past_moment(asked.as_of, "as_of")
        return plain(
            await desk.threads.answer(
                lambda: Audits(desk.project).report(asked.asset, asked.partition, as_of=when, keep=True)
            )
        )
