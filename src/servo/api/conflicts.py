"""The route of run-key conflicts."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Controller, Response, get
from msgspec import Meta

from servo.answers.runs import RunConflict
from servo.api.desk import AtDesk, Found
from servo.api.glimpses import Glimpse
from servo.api.inputs import Listing
from servo.api.operations import operation
from servo.runtime.automation.run_conflicts import run_conflicts

__all__ = ["ConflictRoutes"]


class ConflictsAsked(Listing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    run_key: Annotated[str, Meta(description="Only those about this run key.", max_length=1_000)] | None = None


class ConflictRoutes(Controller):
    path = "/conflicts"
    tags = ["conflicts"]

    @get(opt=operation("viewer", shape="page", answers=RunConflict, query=ConflictsAsked))
    async def list(self, desk: AtDesk) -> Response[bytes]:
        """List requests whose run key stands for another run, newest first: they were recorded, and started nothing."""
        asked = desk.query(ConflictsAsked)

        def work(here: Glimpse, before: str | None) -> Found[Any]:
            return Found(items=run_conflicts(here.project, run_key=asked.run_key, before=before, limit=asked.limit + 1))

        return await desk.page(asked, work, place=lambda one: one.conflicting_event_id, kind=str, timeless=True)
