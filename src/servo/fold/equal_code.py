"""Versions of an asset's code that make the same, as classes: equal to the same is equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["EQUAL_CODE", "CodeClasses", "code_classes"]

EQUAL_CODE = "SELECT asset_id, code_version, equal_code_version FROM equal_code"


class CodeClasses:
    """Which versions are equal, by asset id. A version that nobody declared equal to another is a class of its own."""

    def __init__(self, same_as: Mapping[tuple[str, str], str]) -> None:
        self._same_as = dict(same_as)

    def of(self, asset_id: str, version: str) -> str:
        """The version that stands for all that are equal to this one."""
        return self._same_as.get((asset_id, version), version)

    def are_equal(self, asset_id: str, one: str, other: str) -> bool:
        return self.of(asset_id, one) == self.of(asset_id, other)

    def equal_to(self, asset_id: str, version: str) -> set[str]:
        """All versions that are equal to this one, with itself."""
        same = self.of(asset_id, version)
        return {version} | {one for (asset, one), to in self._same_as.items() if asset == asset_id and to == same}

    def rows(self, asset_ids: Iterable[str]) -> list[tuple[str, str, str]]:
        """Asset id, version and what stands for it, of the versions of some assets that are equal to others."""
        wanted = set(asset_ids)
        return sorted((asset, version, same) for (asset, version), same in self._same_as.items() if asset in wanted)


def code_classes(rows: Iterable[tuple[str, str, str]]) -> CodeClasses:
    """The classes that pairs of equal versions make: rows of EQUAL_CODE."""
    members: dict[tuple[str, str], set[str]] = {}
    for asset_id, one, other in rows:
        together = members.get((asset_id, one), {one}) | members.get((asset_id, other), {other})
        for version in together:
            members[asset_id, version] = together
    return CodeClasses({place: min(together) for place, together in members.items() if len(together) > 1})
