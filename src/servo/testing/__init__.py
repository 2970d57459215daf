"""For the tests of a project: try one asset out, with no ledger and no files left behind."""

from servo.testing.materializing import Materialized, materialize

__all__ = ["Materialized", "materialize"]
