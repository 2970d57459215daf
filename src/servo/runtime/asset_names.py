"""Assets by names that they had before, or have since: an asset that was renamed is found by either."""

from __future__ import annotations

from contextlib import suppress

from servo.errors import LedgerNotFound
from servo.planning.catalog import Catalog
from servo.runtime.wiring import Project

__all__ = ["with_other_names"]

_PATIENCE = 60.0  # seconds for the tail to be folded
_NAMES = """
    SELECT asset_key, arg_max(asset_id, number) FROM asset_versions
    WHERE asset_key IS NOT NULL GROUP BY asset_key
"""


def with_other_names(project: Project, known: Catalog) -> Catalog:
    """The same catalog, in which an asset is found by every name that it ever had, as long as no other has it.

    Names are looked up in the ledger as it is now, and only where a name is not one of the catalog's: a catalog of the
    past knows what its assets were called then, and is asked by what they are called since.
    """

    def other_names() -> dict[str, str]:
        keys = {asset_id: key for key, asset_id in known.asset_ids.items()}
        with suppress(LedgerNotFound):
            rows = project.reader.query(_NAMES, fresh=True, timeout=_PATIENCE).rows
            return {name: keys[asset_id] for name, asset_id in rows if asset_id in keys}
        return {}

    return known.with_other_names(other_names)
