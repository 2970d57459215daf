"""The route of what schedules will do."""

from __future__ import annotations

import time
from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import SkipValidation
from msgspec import Meta

from servo.answers.schedules import Forecast
from servo.api.desk import AtDesk
from servo.api.glimpses import Glimpse
from servo.api.inputs import Reading, moment_of
from servo.api.limits import Shares
from servo.api.operations import operation
from servo.api.protocols import Triggering
from servo.errors import InvalidInput
from servo.events.definitions import ScheduleDefinition
from servo.runtime.automation.schedules import Schedules
from servo.runtime.evaluation.questions import Evaluation

__all__ = ["ForecastRoutes"]

_LONGEST_SECONDS = 20  # for all that functions of schedules are asked


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
            end = time.monotonic() + _LONGEST_SECONDS

            def ask(one: ScheduleDefinition, at: datetime) -> Evaluation:
                assert ticking is not None
                if time.monotonic() > end:
                    raise InvalidInput(
                        f"days: what functions of schedules answer took more than {_LONGEST_SECONDS} s so far",
                        hint="look less far ahead, or at one schedule",
                    )
                return ticking.ask(one, at)

            return Schedules(here.project).next(
                days=asked.days,
                name=asked.schedule,
                since=since,
                limit=asked.limit,
                ask=None if ticking is None else ask,
            )

        # Functions of schedules are anybody's code, and may take their time.
        async with shares.place("forecast"):
            return await desk.one(asked, work, out_of_turn=True)
