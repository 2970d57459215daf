"""Audit reports as people ask for them."""

from __future__ import annotations

from datetime import datetime

from servo.lineage.report import Report
from servo.operations.audit.requests import GetReport, KeepReport
from servo.operations.moments import past_moment
from servo.runtime.audits import Audits
from servo.runtime.serving import serves_question
from servo.runtime.wiring import Project


@serves_question(GetReport)
def get_report(project: Project, request: GetReport, as_of: datetime | str | None) -> Report:
    return Audits(project).report(request.asset, request.partition, as_of=as_of, keep=False)


@serves_question(KeepReport)
def keep_report(project: Project, request: KeepReport, _: datetime | str | None) -> Report:
    as_of = None if request.as_of is None else past_moment(request.as_of, "as_of")
    return Audits(project).report(request.asset, request.partition, as_of=as_of, keep=True)
