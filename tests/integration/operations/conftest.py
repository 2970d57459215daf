"""What tests of this folder share."""

from __future__ import annotations

from tests.support.both_engines import both_engines

__all__ = ["both_engines"]
