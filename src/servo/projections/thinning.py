"""Which versions of the projections are kept: the newest, and of older ones ever fewer, so that the past stays near."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from servo.projections.manifest import Manifest

__all__ = ["Thinning"]


class Thinning(msgspec.Struct, frozen=True, kw_only=True):
    """The newest so many versions; then the last of each hour for some days, of each day for some more, and of each
    month for so many years, or for ever."""

    newest: int = 16
    hourly_days: int = 2
    daily_days: int = 31
    monthly_years: int | None = None

    def kept(self, versions: Iterable[Manifest], now: datetime) -> Iterator[Manifest]:
        """Those of the versions that are kept at a time.

        The last of a month is the last of its day, and that is the last of its hour: what is kept later on was kept
        until then.
        """
        ordered = sorted(versions, key=lambda one: one.version)
        later = {self._period(one, now): one.version for one in ordered}
        newest = {one.version for one in ordered[-self.newest :]}
        for one in ordered:
            period = self._period(one, now)
            if one.version in newest or (period is not None and later[period] == one.version):
                yield one

    def _period(self, version: Manifest, now: datetime) -> str | None:
        """The hour, day or month that the version may be kept for; None if it is too old."""
        if version.created_at is None:
            return None
        made = version.created_at.astimezone(UTC)
        age = now - made
        if age <= timedelta(days=self.hourly_days):
            return f"{made:%Y-%m-%dT%H}"
        if age <= timedelta(days=self.daily_days):
            return f"{made:%Y-%m-%d}"
        if self.monthly_years is None or age <= timedelta(days=366 * self.monthly_years):
            return f"{made:%Y-%m}"
        return None
