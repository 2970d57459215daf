"""Servo: a partition-aware orchestrator for data assets that Spark computes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servo import testing
    from servo.assets import checks as check
    from servo.assets.automation import Schedule, Skip, TickContext, on, schedule, sensor
    from servo.assets.decorator import Dep, asset
    from servo.assets.evaluation import Message, RunRequest, SensorContext
    from servo.assets.spec import Approval, Retry
    from servo.assets.watches import NewFiles, NewPartitions, NewRows, RunEnded
    from servo.client import Client
    from servo.partitions import Cron, Daily, Dynamic, Hourly, Monthly, Static, Weekly
    from servo.partitions import mappings as mapping
    from servo.runtime.spark_reads import read, spark_views

__version__ = "0.1.0"
__all__ = [
    "Approval",
    "Client",
    "Cron",
    "Daily",
    "Dep",
    "Dynamic",
    "Hourly",
    "Message",
    "Monthly",
    "NewFiles",
    "NewPartitions",
    "NewRows",
    "Retry",
    "RunEnded",
    "RunRequest",
    "Schedule",
    "SensorContext",
    "Skip",
    "Static",
    "TickContext",
    "Weekly",
    "__version__",
    "asset",
    "check",
    "mapping",
    "on",
    "read",
    "schedule",
    "sensor",
    "spark_views",
    "testing",
]

# Where each name comes from; without a second part it is the module itself.
_PLACES = {
    "Approval": "servo.assets.spec:Approval",
    "Client": "servo.client:Client",
    "Cron": "servo.partitions:Cron",
    "Daily": "servo.partitions:Daily",
    "Dep": "servo.assets.decorator:Dep",
    "Dynamic": "servo.partitions:Dynamic",
    "Hourly": "servo.partitions:Hourly",
    "Message": "servo.assets.evaluation:Message",
    "Monthly": "servo.partitions:Monthly",
    "NewFiles": "servo.assets.watches:NewFiles",
    "NewPartitions": "servo.assets.watches:NewPartitions",
    "NewRows": "servo.assets.watches:NewRows",
    "Retry": "servo.assets.spec:Retry",
    "RunEnded": "servo.assets.watches:RunEnded",
    "RunRequest": "servo.assets.evaluation:RunRequest",
    "Schedule": "servo.assets.automation:Schedule",
    "SensorContext": "servo.assets.evaluation:SensorContext",
    "Skip": "servo.assets.automation:Skip",
    "Static": "servo.partitions:Static",
    "TickContext": "servo.assets.automation:TickContext",
    "Weekly": "servo.partitions:Weekly",
    "asset": "servo.assets.decorator:asset",
    "check": "servo.assets.checks",
    "mapping": "servo.partitions.mappings",
    "on": "servo.assets.automation:on",
    "read": "servo.runtime.spark_reads:read",
    "schedule": "servo.assets.automation:schedule",
    "sensor": "servo.assets.automation:sensor",
    "spark_views": "servo.runtime.spark_reads:spark_views",
    "testing": "servo.testing",
}


def __getattr__(name: str) -> Any:
    """Load what the package offers when it is asked for: `import servo` alone stays quick."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'servo' has no attribute {name!r}")
    module, _, attribute = place.partition(":")
    found = import_module(module)
    value = getattr(found, attribute) if attribute else found
    globals()[name] = value  # so that the next look finds it at once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
