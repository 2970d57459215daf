"""The routes that a machine calls to drive this one."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from litestar import Controller, Response, post
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from servo.api.operations import operation
from servo.api.protocols import Driver
from servo.api.threads import Threads

__all__ = ["InternalRoutes"]


class InternalRoutes(Controller):
    path = "/internal"
    tags = ["internal"]

    @post("/tick", status_code=HTTPStatus.OK, opt=operation("operator", shape="plain"))
    async def tick(
        self,
        driver: NamedDependency[SkipValidation[Driver]],
        threads: NamedDependency[SkipValidation[Threads]],
    ) -> Response[msgspec.Struct]:
        """Do one pass over schedules and sensors, as `servo tick` does; a pass waits for the one before it."""
        return Response(await threads.one_pass(driver))
