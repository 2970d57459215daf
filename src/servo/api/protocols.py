"""What the routes need of the process that serves them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

__all__ = ["Driver"]

Driver = Callable[[], msgspec.Struct]
"""Does one pass over schedules and sensors, and reports what it did."""
