"""Whether projections and a ledger belong together."""

from __future__ import annotations

from servo.errors import ProjectionDamaged
from servo.ledger.history import History
from servo.projections.manifest import REBUILD, Manifest
from servo.projections.store import Store


def require_same_ledger(store: Store, history: History, manifest: Manifest) -> None:
    """A version continues only in the ledger that it was folded from: the chain hash at its watermark says which."""
    watermark = manifest.watermark
    if watermark.position == 0:
        return
    at = history.read(watermark.position - 1, 1)
    if not at or at[0].chain_hash != watermark.chain_hash:
        raise ProjectionDamaged(
            f"the projections in {store.root} were folded from another ledger, or this one has lost events since"
            f" (position {watermark.position})",
            hint=REBUILD,
        )
