"""Materializations: every version of a partition, and going back to an earlier one."""
