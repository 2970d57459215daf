"""Whatever a snapshot keeps from an earlier state is worked out anew as well, and must be the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Set
from typing import Any

import pytest

from servo.planning.catalog import Catalog
from servo.projections.snapshot import Snapshot
from servo.status import staleness
from servo.status.keysets import Stored, stored
from servo.status.state import State

__all__ = ["kept_values"]


@pytest.fixture(autouse=True)
def kept_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """In effect for all tests of a folder whose conftest imports it."""
    recall, derived, hold = Snapshot.recall, Snapshot.derived, staleness._KeptSets.hold
    reasons: dict[int, str | None] = {}

    def recalled(self: Snapshot, name: Any) -> Any:
        value = recall(self, name)
        if isinstance(value, staleness._KeptSets):
            reasons[id(value)] = name[1]
        if isinstance(value, Stored):
            asset_id, definition, where, *flags = name
            assert value == stored(self.tables(), {asset_id: definition}, flags, where=where)[asset_id], name
        return value

    def derived_again(self: Snapshot, name: Hashable, tables: Set[str], make: Callable[[], Any]) -> Any:
        known, value = recall(self, name), derived(self, name, tables, make)
        if known is not None:
            new = make()
            same = known.graph.specs == new.graph.specs if isinstance(known, Catalog) else known == new
            assert same, name
        return value

    def held(self: staleness._KeptSets, state: State, asset_keys: Sequence[str]) -> bool:
        holds = hold(self, state, asset_keys)
        if holds:
            reason = reasons[id(self)]
            flags = [] if reason is None else [f"{staleness.COLUMNS[staleness.REASONS.index(reason)]} IS NOT NULL"]
            rows = staleness._stored(state, asset_keys, flags)[0]
            sets = {key: some.of(state.catalog.spec(key).partitions, having=len(flags)) for key, some in rows.items()}
            assert self.sets == {key: some for key, some in sets.items() if some}
        return holds

    monkeypatch.setattr(Snapshot, "recall", recalled)
    monkeypatch.setattr(Snapshot, "derived", derived_again)
    monkeypatch.setattr(staleness._KeptSets, "hold", held)
