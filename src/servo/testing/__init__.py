"""For the tests of a project: try one asset out, with no ledger and no files left behind."""

from servo.testing.comparing import BatchComparison, compare_batch
from servo.testing.materializing import Materialized, materialize

__all__ = ["BatchComparison", "Materialized", "compare_batch", "materialize"]
