"""Which of several drivers asks a sensor: one at a time, without a lock.

A sensor falls to one of the drivers that are alive, by its id and theirs: all who know the same drivers agree, and few
sensors move when one leaves. Whoever comes is not counted before it has been there for as long as an evaluation may
take, and does not ask before it has been counted for as long again: by then, whatever its predecessor was asking has
ended. A driver that is killed takes its evaluations with it. Should two ask after all, the cursor decides.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from hashlib import sha256

from servo.ids import ulid_time

__all__ = ["may_ask"]


def may_ask(driver: str, drivers: Collection[str], sensor_id: str, now: datetime, timeout: float) -> bool:
    """Whether a sensor is this driver's to ask. Drivers are known by ULIDs, which tell since when they are there."""
    return all(_owner(drivers, sensor_id, now, age) == driver for age in (timeout, 2 * timeout))


def _owner(drivers: Collection[str], sensor_id: str, now: datetime, age: float) -> str:
    """To whom it falls among those that have been there for so long; where nobody has, to the first that came."""
    settled = [driver for driver in drivers if (now - ulid_time(driver)).total_seconds() >= age]
    return max(settled, key=lambda driver: _weight(driver, sensor_id)) if settled else min(drivers)


def _weight(driver: str, sensor_id: str) -> bytes:
    return sha256(f"{driver}:{sensor_id}".encode()).digest()
