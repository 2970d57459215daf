"""Releasing what a call cached, where Spark does not remove it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from servo.execution import call_session


class CacheManager:
    """Spark's cache of plans; `stuck` entries stay when they are to be removed."""

    def __init__(self, entries: list[str], stuck: set[str]) -> None:
        self.entries, self.stuck, self.asked = entries, stuck, 0

    def isEmpty(self) -> bool:  # noqa: N802 (as Spark has it)
        return not self.entries

    def getClass(self) -> Any:  # noqa: N802
        rows = [SimpleNamespace(plan=lambda name=name: name) for name in self.entries]
        cached = SimpleNamespace(size=lambda: len(rows), apply=lambda number: rows[number])
        field = SimpleNamespace(setAccessible=lambda _: None, get=lambda _: cached)
        return SimpleNamespace(getDeclaredField=lambda _: field)

    def uncacheQuery(self, _session: Any, plan: str, _cascade: bool) -> None:  # noqa: N802
        self.asked += 1
        assert self.asked < 100, "it asks for ever"
        if plan not in self.stuck:
            self.entries.remove(plan)


def test_an_entry_that_spark_does_not_remove_is_not_asked_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_session, "_cached_by", lambda _: "call_1")
    manager = CacheManager(["a", "b", "c"], stuck={"b"})
    state = SimpleNamespace(cacheManager=lambda: manager)
    session: Any = SimpleNamespace(_servo_call="call_1", _jsparkSession=SimpleNamespace(sharedState=lambda: state))
    call_session._release_cached(session)
    assert manager.entries == ["b"]
