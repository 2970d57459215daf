"""Parquet tables that can be thrown away and rebuilt, and the reader over them.

The writing half is in `compactor`: it loads Arrow, which reads from files alone need not.
"""

from servo.projections.manifest import Manifest, Watermark
from servo.projections.reader import Reader, TailLimits
from servo.projections.snapshot import Answer, Snapshot
from servo.projections.store import Store

__all__ = ["Answer", "Manifest", "Reader", "Snapshot", "Store", "TailLimits", "Watermark"]
