"""Schedules and sensors of a server."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from secrets import token_hex
from typing import Any

import msgspec

from servo import decoders
from servo.answers.automation import Changed
from servo.answers.runs import RunConflict
from servo.answers.schedules import Forecast, ScheduleView, Ticked, TickView
from servo.answers.sensors import Accepted, CursorReset, EvalView, SensorView
from servo.client.asking import Noun, given
from servo.client.transport import path_of

__all__ = ["Conflicts", "Schedules", "Sensors"]


class _Switched(Noun):
    """What can be paused, resumed and deleted. All of it takes `reason` and `expected_state_version`."""

    _noun = ""

    def pause(self, named: str, **asked: Any) -> Changed:
        return self._switch(named, "pause", **asked)

    def resume(self, named: str, **asked: Any) -> Changed:
        return self._switch(named, "resume", **asked)

    def delete(
        self,
        named: str,
        *,
        reason: str | None = None,
        expected_state_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Changed:
        """Delete one that no code declares."""
        query = given(reason=reason, expected_state_version=expected_state_version)
        return self._ask.change("DELETE", path_of(self._noun, named), Changed, None, key=idempotency_key, **query)

    def _switch(
        self,
        named: str,
        how: str,
        *,
        reason: str | None = None,
        expected_state_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Changed:
        body = given(reason=reason, expected_state_version=expected_state_version)
        return self._ask.change("POST", path_of(self._noun, named, how), Changed, body, key=idempotency_key)


class Schedules(_Switched):
    """`client.schedules`. One is named by its name or id."""

    _noun = "schedules"

    def create(
        self, name: str, *, cron: str, select: str | Sequence[str], idempotency_key: str | None = None, **asked: Any
    ) -> Changed:
        """Make one that no code declares: `timezone`, `partitions`, `overlap`, `tags`, `enabled`, … may be given."""
        body = {"name": name, "cron": cron, "select": [select] if isinstance(select, str) else list(select), **asked}
        return self._ask.change("POST", path_of("schedules"), Changed, body, key=idempotency_key)

    def list(self, *, status: str | None = None, limit: int | None = None, **reading: Any) -> Iterator[ScheduleView]:
        """Schedules by name; `status`: enabled or paused."""
        return self._ask.all(path_of("schedules"), ScheduleView, given(status=status, limit=limit) | reading)

    def get(self, schedule: str, **reading: Any) -> ScheduleView:
        return self._ask.one(path_of("schedules", schedule), ScheduleView, reading)

    def update(
        self,
        schedule: str,
        *,
        expected_state_version: int | None = None,
        idempotency_key: str | None = None,
        **edited: Any,
    ) -> Changed:
        """Edit one that no code declares; what is left out stays as it is."""
        body = edited | given(expected_state_version=expected_state_version)
        return self._ask.change("PATCH", path_of("schedules", schedule), Changed, body, key=idempotency_key)

    def ticks(
        self, schedule: str, *, status: str | None = None, limit: int | None = None, **asked: Any
    ) -> Iterator[TickView]:
        """Its ticks, newest first."""
        query = given(status=status, limit=limit) | asked
        return self._ask.all(path_of("schedules", schedule, "ticks"), TickView, query)

    def forecast(
        self,
        schedule: str | None = None,
        *,
        days: float | None = None,
        since: datetime | str | None = None,
        limit: int | None = None,
        **reading: Any,
    ) -> Forecast:
        """What would fire in the days to come, of one or of all that are on, and what each tick would fill."""
        query = given(schedule=schedule, days=days, since=since, limit=limit)
        return self._ask.one(path_of("forecast"), Forecast, query | reading)

    def trigger(self, schedule: str, *, at: datetime | str | None = None, idempotency_key: str | None = None) -> Ticked:
        """Let it tick now, paused or not."""
        body = given(at=at if at is None or isinstance(at, str) else at.isoformat())
        return self._ask.change("POST", path_of("schedules", schedule, "trigger"), Ticked, body, key=idempotency_key)


class Sensors(_Switched):
    """`client.sensors`. One is named by its name or id."""

    _noun = "sensors"

    def create(self, name: str, *, select: str, idempotency_key: str | None = None, **asked: Any) -> Changed:
        """Make one that no code declares: with a `watch` it polls, without one it is sent messages."""
        body = {"name": name, "select": select, **asked}
        return self._ask.change("POST", path_of("sensors"), Changed, body, key=idempotency_key)

    def list(self, *, status: str | None = None, limit: int | None = None, **reading: Any) -> Iterator[SensorView]:
        """Sensors by name; `status`: enabled or paused."""
        return self._ask.all(path_of("sensors"), SensorView, given(status=status, limit=limit) | reading)

    def get(self, sensor: str, **reading: Any) -> SensorView:
        return self._ask.one(path_of("sensors", sensor), SensorView, reading)

    def evals(
        self,
        sensor: str,
        *,
        status: str | None = None,
        trigger: str | None = None,
        limit: int | None = None,
        **asked: Any,
    ) -> Iterator[EvalView]:
        """Its evaluations, newest first."""
        query = given(status=status, trigger=trigger, limit=limit) | asked
        return self._ask.all(path_of("sensors", sensor, "evals"), EvalView, query)

    def evaluate(
        self,
        sensor: str,
        *,
        data: str | None = None,
        attributes: Mapping[str, str] | None = None,
        message_id: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> Accepted:
        """Ask it now: about a sample (`data`), or about a message that was skipped or failed (`message_id`)."""
        body = given(data=data, message_id=message_id) | {"attributes": dict(attributes or {}), "dry_run": dry_run}
        found: Accepted = self._ask.change(
            "POST", path_of("sensors", sensor, "evaluate"), Accepted, body, key=idempotency_key
        )
        # Of a trial nothing is recorded, which says nothing about whether it was asked for before.
        return msgspec.structs.replace(found, duplicate=False) if dry_run else found

    def send(
        self,
        sensor: str,
        data: str | bytes,
        *,
        message_id: str | None = None,
        attributes: Mapping[str, str] | None = None,
        published_at: datetime | None = None,
    ) -> Accepted:
        """Send a message to a push sensor; it is durable when this returns. The same id is the same message."""
        sent = data.encode() if isinstance(data, str) else data
        message = {
            "messageId": token_hex(16) if message_id is None else message_id,
            "data": b64encode(sent).decode(),
            "attributes": dict(attributes or {}),
            **({} if published_at is None else {"publishTime": published_at.isoformat()}),
        }
        said = self._ask.plain(path_of("sensors", sensor, "messages"), {"message": message})
        self._ask.remember(said["accepted_event_id"])
        new = [] if said["duplicate"] else said["run_ids"]
        return decoders.convert({"started": new, **said, "event_id": said["accepted_event_id"]}, Accepted)

    def reset_cursor(
        self,
        sensor: str,
        cursor: str | None,
        *,
        reason: str | None = None,
        expected_state_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> CursorReset:
        """Let it go on from another cursor; None: from the beginning."""
        body = {"cursor": cursor} | given(reason=reason, expected_state_version=expected_state_version)
        path = path_of("sensors", sensor, "reset-cursor")
        return self._ask.change("POST", path, CursorReset, body, key=idempotency_key)


class Conflicts(Noun):
    """`client.conflicts`."""

    def list(self, *, run_key: str | None = None, limit: int | None = None, **reading: Any) -> Iterator[RunConflict]:
        """Requests whose run key stands for another run, newest first: they started nothing."""
        return self._ask.all(path_of("conflicts"), RunConflict, given(run_key=run_key, limit=limit) | reading)
