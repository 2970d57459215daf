"""Servo: a partition-aware orchestrator for data assets that Spark computes."""

__version__ = "0.1.0"
