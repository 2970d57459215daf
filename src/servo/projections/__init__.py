"""Parquet tables that can be thrown away and rebuilt, and the reader over them."""

from servo.projections.compactor import Compactor
from servo.projections.manifest import Manifest, Watermark
from servo.projections.reader import Reader, TailLimits
from servo.projections.snapshot import Answer, Snapshot
from servo.projections.store import Store

__all__ = ["Answer", "Compactor", "Manifest", "Reader", "Snapshot", "Store", "TailLimits", "Watermark"]
