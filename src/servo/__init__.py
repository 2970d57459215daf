"""Servo: a partition-aware orchestrator for data assets that Spark computes."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servo.runtime.views import spark_views

__version__ = "0.1.0"
__all__ = ["__version__", "spark_views"]


def __getattr__(name: str) -> Any:
    """Load what the package offers when it is asked for: `import servo` alone stays quick."""
    if name == "spark_views":
        from servo.runtime.views import spark_views  # noqa: PLC0415

        return spark_views
    raise AttributeError(f"module 'servo' has no attribute {name!r}")
