"""The facts of a sensor's evaluation: one about itself and one for each run that it asks for, recorded together.

A poll speaks of the cursor that it began with. Where that was moved meanwhile, the evaluation is recorded
as having come too late, and its requests are dropped with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import msgspec

from servo.assets.selection import Selection
from servo.controllers.automation_boards import SensorState
from servo.controllers.requests import request
from servo.errors import InvalidInput
from servo.events.automation import SensorEvaluated
from servo.events.definitions import Source
from servo.events.fact import Fact
from servo.events.lifecycles import EvaluationStatus
from servo.events.model import DynamicPartitionsChanged, RunRequested
from servo.partitions import PartitionKey
from servo.planning.catalog import Catalog

RECORDED_EVERY = timedelta(hours=1)  # of polls that find nothing, one in so long is recorded
_LONGEST_KEY = 512


class Occasion(msgspec.Struct, frozen=True, kw_only=True):
    """The occasion of an evaluation: a message, the time, or a person."""

    trigger: str  # push, poll, manual
    message_id: str | None = None
    poll_epoch: int | None = None
    request_id: str | None = None
    message: dict[str, Any] | None = None  # as it is kept, where nobody answers it

    def eval_id(self, sensor: SensorState) -> str:
        if self.trigger == "poll":
            cursor = "none" if sensor.cursor is None else sha256(sensor.cursor.encode()).hexdigest()[:16]
            return f"{sensor.id}:poll:{self.poll_epoch}:{cursor}"
        return (
            f"{sensor.id}:manual:{self.request_id}"
            if self.trigger == "manual"
            else f"{sensor.id}:msg:{self.message_id}"
        )


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a sensor asks for, with the partitions that its selection means."""

    run_key: str
    selection: Selection
    tags: Mapping[str, str] = {}


def run_key_of(sensor: SensorState, occasion: Occasion, key: str | None, *, alone: bool) -> str:
    """The run key of a request. Only a message or a person that asks for a single run is a key by itself."""
    if key is not None:
        if not key or len(key) > _LONGEST_KEY:
            raise InvalidInput(f"a run request has the key {key!r:.40}", hint=f"give 1 to {_LONGEST_KEY} characters")
        return f"sensor:{sensor.id}:{key}"
    if occasion.message_id is not None and alone:
        return f"sensor:{sensor.id}:msg:{occasion.message_id}"
    if occasion.trigger == "manual" and alone:
        return f"sensor:{sensor.id}:manual:{occasion.request_id}"
    raise InvalidInput(
        "a run request has no key, so that nobody could tell it from the next one", hint="write RunRequest(key=…)"
    )


def answered(
    sensor: SensorState,
    occasion: Occasion,
    wishes: Sequence[Wish],
    catalog: Catalog,
    run_id_of: Callable[[str], str],
    *,
    cursor: str | None = None,
    added: Mapping[str, Sequence[str]] | None = None,
    reason: str | None = None,
    refused: Sequence[str] = (),
    log: str | None = None,
) -> list[Fact]:
    """The facts of an evaluation that went well: values of dynamic dimensions that are new, itself, its requests.

    `refused` says of each request that could do nothing why. They are not recorded, so their run keys are not used: the
    cursor stays, a message is kept, and the sensor is asked again later, when the same keys may run. What it asks for
    besides is asked for: who asks for it again asks for the same runs.
    """
    if refused and not wishes:
        return failed(sensor, occasion, _refusal(refused), log=log)
    eval_id = occasion.eval_id(sensor)
    prefix = f"sensor:{sensor.id}:"
    requests: dict[str, RunRequested] = {}
    for wish in wishes:
        asked = request(
            catalog,
            wish.selection.wanted,
            added=wish.selection.added,
            only_stale=wish.selection.only_stale,
            run_key=wish.run_key,
            run_id=run_id_of(wish.run_key),
            # The key, and not the evaluation: who asks for the same again, in whatever evaluation, says the same.
            source=Source(kind="sensor", id=sensor.id, detail=wish.run_key.removeprefix(prefix)),
            tags=wish.tags,
        )
        before = requests.setdefault(wish.run_key, asked)
        if before.request_fingerprint != asked.request_fingerprint:
            key = wish.run_key.removeprefix(prefix)
            raise InvalidInput(
                f"it asks for two different runs under the key {key!r:.80}", hint="give each its own key"
            )
    fact = _evaluated(
        sensor,
        occasion,
        EvaluationStatus.TRIGGERED if requests else EvaluationStatus.NO_DATA,
        cursor_after=sensor.cursor if refused else cursor,
        run_keys=list(requests),
        fingerprints=[asked.request_fingerprint for asked in requests.values()],
        reason=_refusal(refused) if refused else reason,
        failures=_failures(sensor, occasion) if refused else 0,
        message=occasion.message if refused else None,
        log=log,
    )
    values = [
        DynamicPartitionsChanged(change_id=f"{eval_id}:{dimension}", dimension=dimension, added=list(new))
        for dimension, new in (added or {}).items()
    ]
    return [*values, fact, *requests.values()]


def is_counted(sensor: SensorState, facts: Sequence[Fact], now: datetime) -> bool:
    """Whether the facts of a poll are only counted, since they change nothing: no request, the same cursor, no error.

    One such poll an hour is recorded all the same, with the number of those before it; so is the first of a sensor, and
    the first after a failure, which ends its waiting.
    """
    fact = facts[0] if len(facts) == 1 else None
    if not isinstance(fact, SensorEvaluated) or (fact.trigger, fact.status) != ("poll", EvaluationStatus.NO_DATA):
        return False
    if fact.cursor_after != fact.cursor_before or sensor.failures or sensor.recorded_at is None:
        return False
    return timedelta(0) <= now - sensor.recorded_at < RECORDED_EVERY


def with_quiet_polls(facts: Sequence[Fact], quiet: int, since: datetime | None) -> list[Fact]:
    """The facts of a poll, with how many found nothing before it."""
    return [
        msgspec.structs.replace(fact, quiet_polls=quiet, quiet_since=since)
        if isinstance(fact, SensorEvaluated)
        else fact
        for fact in facts
    ]


def new_values(added: Mapping[str, Iterable[str]], catalog: Catalog) -> dict[str, list[str]]:
    """The values of dynamic dimensions that are not there yet. Refuses what no key can hold."""
    found = {}
    for dimension, values in added.items():
        known = set(catalog.dynamic.get(dimension, ()))
        new = [value for value in dict.fromkeys(values) if value not in known]
        for value in new:
            PartitionKey.of({dimension: value})
        if new:
            found[dimension] = new
    return found


def failed(sensor: SensorState, occasion: Occasion, reason: str, *, log: str | None = None) -> list[Fact]:
    """An evaluation that came to nothing: the cursor stays, and a message can be evaluated again by hand."""
    return [
        _evaluated(
            sensor,
            occasion,
            EvaluationStatus.FAILED,
            reason=reason,
            failures=_failures(sensor, occasion),
            message=occasion.message,
            log=log,
        )
    ]


def _refusal(refused: Sequence[str]) -> str:
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    return f"not asked for {refused[0]}{more}"


def _failures(sensor: SensorState, occasion: Occasion) -> int:
    return sensor.failures + 1 if occasion.trigger == "poll" else 0


def skipped(sensor: SensorState, occasion: Occasion, reason: str) -> list[Fact]:
    """A message that came while nobody was to look at it."""
    return [_evaluated(sensor, occasion, EvaluationStatus.SKIPPED, reason=reason, message=occasion.message)]


def late(sensor: SensorState, occasion: Occasion, now: SensorState) -> list[Fact]:
    """A poll of a cursor that was moved meanwhile: what it asked for is dropped."""
    reason = f"the cursor was at version {sensor.state_version}, and is at {now.state_version} by now"
    return [_evaluated(sensor, occasion, EvaluationStatus.SKIPPED_STALE_CURSOR, reason=reason)]


def _evaluated(
    sensor: SensorState, occasion: Occasion, status: EvaluationStatus, *, cursor_after: str | None = None, **more: Any
) -> SensorEvaluated:
    polled = occasion.trigger == "poll"
    return SensorEvaluated(
        eval_id=occasion.eval_id(sensor),
        sensor_id=sensor.id,
        trigger=occasion.trigger,
        status=status,
        message_id=occasion.message_id,
        poll_epoch=occasion.poll_epoch,
        request_id=occasion.request_id,
        expected_state_version=sensor.state_version if polled else None,
        cursor_before=sensor.cursor if polled else None,
        cursor_after=cursor_after if polled else None,
        definition_version=sensor.definition.version,
        **more,
    )
