"""What tests of this folder share."""

from __future__ import annotations

from tests.support.both_engines import both_engines
from tests.support.kept_values import kept_values

__all__ = ["both_engines", "kept_values"]
