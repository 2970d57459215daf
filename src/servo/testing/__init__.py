"""For the tests of a project: try one asset out, with no ledger and no files left behind."""

from servo.testing.materializing import BatchComparison, Materialized, compare_batch, materialize

__all__ = ["BatchComparison", "Materialized", "compare_batch", "materialize"]
