"""The route of what schedules will do."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import SkipValidation
from msgspec import Meta

from servo.api.desk import AtDesk
from servo.api.glimpses import Glimpse
from servo.api.inputs import Reading, moment_of
from servo.api.limits import Shares
from servo.api.operations import operation
from servo.api.protocols import Triggering
from servo.runtime.automation.schedule_preview import Forecast
from servo.runtime.automation.schedules import Schedules

__all__ = ["ForecastRoutes"]


class ForecastAsked(Reading, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schedule: (
        Annotated[
            str, Meta(description="Of this one, by its name or id; of all that are on, if left out.", max_length=500)
        ]
        | None
    ) = None
    days: Annotated[float, Meta(gt=0, le=3_660, description="How far to look ahead.")] = 7
    since: Annotated[str, Meta(description="From then on; from now on, if left out.", max_length=64)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000, description="At most so many ticks.")] = 200


class ForecastRoutes(Controller):
    path = "/forecast"
    tags = ["schedules"]

    @get(
        opt=operation(
            "viewer",
            answers=Forecast,
            query=ForecastAsked,
            refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.TOO_MANY_REQUESTS),
        )
    )
    async def forecast(
        self,
        desk: AtDesk,
        ticking: NamedDependency[SkipValidation[Triggering | None]],
        shares: NamedDependency[SkipValidation[Shares]],
    ) -> Response[bytes]:
        """Say what would fire in the days to come, and which partitions each tick would fill; nothing is written."""
        asked = desk.query(ForecastAsked)
        since = moment_of(asked.since, "since")

        def work(here: Glimpse) -> Forecast:
            return Schedules(here.project).next(
                days=asked.days,
                name=asked.schedule,
                since=since,
                limit=asked.limit,
                ask=None if ticking is None else ticking.ask,
            )

        # Functions of schedules are anybody's code, and may take their time.
        async with shares.place("forecast"):
            return await desk.one(asked, work)
