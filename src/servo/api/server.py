"""What all routes of one server share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from servo.api.threads import Shares, Threads
from servo.runtime.outside import ServerUserCode
from servo.runtime.telemetry.monitoring import Metrics
from servo.runtime.wiring import Project

__all__ = ["Driver", "Server", "WithServer"]

Driver = Callable[[], msgspec.Struct]
"""Does one pass over schedules and sensors, and reports what it did."""


class Server(NamedTuple):
    """The parts of one server, while it serves."""

    project: Project
    threads: Threads
    shares: Shares
    user_code: ServerUserCode
    driver: Driver
    metrics: Metrics


# One dependency and not one for each part: Litestar starts a task for each of several.
WithServer = NamedDependency[SkipValidation[Server]]
