"""What all tests share."""

from __future__ import annotations

import os

# Spark's JVMs live for seconds here: they are compiled for a quick start rather than for hours of work, and need no
# second thread to collect garbage. That is a third of the time that all tests with Spark take.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
