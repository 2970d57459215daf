"""What changed between the code that partitions were made with and that of now: by name, and since when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from servo import canonical, decoders
from servo.assets.reach import changed_code
from servo.fold.partition_rows import EQUAL_CODE, CodeClasses, code_classes
from servo.planning.catalog import Catalog

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["AssetCode", "asset_code", "classes_in", "made_with", "shortened"]

_VERSIONS = """
    SELECT code_version, reached FROM asset_versions WHERE asset_id = $asset_id ORDER BY deployment_version
"""
_MADE_WITH = """
    SELECT last_materialization_code_version, count(*) FROM partition_status
    WHERE asset_id = $asset_id AND materialization_version IS NOT NULL
      AND last_materialization_code_version IS NOT NULL
    GROUP BY ALL ORDER BY ALL
"""
_FEW = 3  # names in one sentence


class AssetCode:
    """The versions of one asset's code, oldest first, and which of them are equal."""

    def __init__(self, asset_id: str, current: str, reached: dict[str, str], rows: list[tuple[Any, ...]]) -> None:
        self.asset_id = asset_id
        self.current = current
        self._versions = [code for code, _ in rows if code is not None]
        self._reached = {code: _digests(text) for code, text in rows if code is not None and text is not None}
        if reached:
            self._reached[current] = reached

    @property
    def versions(self) -> list[str]:
        """Every version that was ever deployed, each where it was deployed last."""
        known = self._versions
        return [code for place, code in enumerate(known) if code not in known[place + 1 :]]

    def changes(self, made_with: Iterable[str]) -> list[str]:
        """What differs between some versions and the current one, in words: `helpers.clean in helpers.py`."""
        now = self._reached.get(self.current, {})
        found = [one for version in made_with for one in changed_code(self._reached.get(version, {}), now)]
        return list(dict.fromkeys(found))


def asset_code(snapshot: Answers, known: Catalog, asset_key: str) -> AssetCode:
    """Of an asset by definitions that may be about to be deployed."""
    spec, asset_id = known.spec(asset_key), known.asset_id(asset_key)
    rows = snapshot.query(_VERSIONS, {"asset_id": asset_id}).rows
    return AssetCode(asset_id, spec.code_version, spec.reached, rows)


def made_with(snapshot: Answers, asset_id: str) -> dict[str, int]:
    """How many of an asset's partitions were made with which version of its code."""
    return dict(snapshot.query(_MADE_WITH, {"asset_id": asset_id}).rows)


def classes_in(snapshot: Answers) -> CodeClasses:
    return code_classes(snapshot.query(EQUAL_CODE).rows)


def shortened(changes: list[str]) -> str:
    """A few of them, for a sentence."""
    more = len(changes) - _FEW
    return ", ".join(changes[:_FEW]) + (f" and {more} more" if more > 0 else "")


def _digests(text: str) -> dict[str, str]:
    return decoders.convert(canonical.loads(text.encode()), dict[str, str])
