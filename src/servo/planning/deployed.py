"""Definitions as the ledger keeps them, and back: an asset's spec and its `AssetDefinition` say the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any

import msgspec

from servo import canonical
from servo.assets.automation import Schedule, Sensor
from servo.assets.checks import Check
from servo.assets.spec import ADMIN, Approval, AssetSpec, Dependency, Retry, Source
from servo.events import definitions as events
from servo.partitions import UNPARTITIONED, Partitions
from servo.partitions.mappings import Mapping as PartitionMapping
from servo.partitions.mappings import Resolve, mapping_from_json

_SECOND = timedelta(seconds=1)
_MILLISECOND = timedelta(milliseconds=1)


# ── assets ───────────────────────────────────────────────────────────────────────────────────────────────────────


def definition_of(spec: AssetSpec, asset_ids: Mapping[str, str]) -> events.AssetDefinition:
    """An asset as the ledger keeps it."""
    return events.AssetDefinition(
        asset_id=asset_ids[spec.key],
        asset_key=spec.key,
        code_version=spec.code_version,
        partitions=spec.partitions.to_json() if spec.partitions.dimensions else None,
        dependencies=[
            events.Dependency(
                asset_id=asset_ids[one.upstream],
                asset_key=one.upstream,
                mapping=None if one.mapping is None else one.mapping.to_json(),
            )
            for one in spec.dependencies
        ],
        group=spec.group,
        owners=list(spec.owners),
        tags=dict(spec.tags),
        description=spec.description,
        freshness_seconds=None if spec.freshness is None else max(1, spec.freshness // _SECOND),
        settings=_settings(spec),
        renamed_from=spec.renamed_from,
        reached=dict(spec.reached),
    )


def _settings(spec: AssetSpec) -> dict[str, Any]:
    return {
        "source": _place(spec.source),
        "retry": _retry_json(spec.retry),
        "parameters": {one.upstream: one.parameter for one in spec.dependencies if one.parameter is not None},
        **_given(
            batch=spec.batch or None,
            sample=None if spec.sample else False,
            strict=spec.strict or None,
            checks=[check.to_json() for check in spec.checks] or None,
            approval=None if spec.approval is None else _approval_json(spec.approval),
        ),
    }


def same_code(spec: AssetSpec, deployed: str | None) -> str | None:
    """The deployed code version, if the first formula made it of this very function.

    Earlier versions of Servo had that formula alone. What the function called then nobody has recorded, so it is taken
    to be what it calls now.
    """
    return deployed if deployed in {spec.first_version} - {None, spec.code_version} else None


def spec_of(definition: events.AssetDefinition, resolve: Resolve | None = None) -> AssetSpec:
    """An asset as it was declared, from what the ledger keeps; the functions of its checks are not in there."""
    settings = definition.settings
    parameters = settings.get("parameters", {})
    source = settings.get("source", {})
    freshness = definition.freshness_seconds
    return AssetSpec(
        key=definition.asset_key,
        partitions=UNPARTITIONED if definition.partitions is None else _partitions(_text(definition.partitions)),
        dependencies=tuple(
            Dependency(
                upstream=one.asset_key,
                parameter=parameters.get(one.asset_key),
                mapping=None if one.mapping is None else _mapping(_text(one.mapping), resolve),
            )
            for one in definition.dependencies
        ),
        code_version=definition.code_version,
        batch=settings.get("batch", False),
        sample=settings.get("sample", True),
        strict=settings.get("strict", False),
        checks=tuple(Check.from_json(one) for one in settings.get("checks", ())),
        retry=_retry(settings.get("retry")),
        approval=_approval(settings.get("approval")),
        freshness=None if freshness is None else timedelta(seconds=freshness),
        group=definition.group,
        owners=tuple(definition.owners),
        tags=dict(definition.tags),
        description=definition.description,
        renamed_from=definition.renamed_from,
        source=Source(source.get("file", "<unknown>"), source.get("line", 0)),
        reached=dict(definition.reached),
    )


def _text(data: dict[str, Any]) -> bytes:
    return canonical.dumps(data)


# Hundreds of assets share a handful of definitions and mappings; reading each text once keeps a catalog quick.
@lru_cache(maxsize=1024)
def _partitions(text: bytes) -> Partitions:
    return Partitions.from_json(canonical.loads(text))


@lru_cache(maxsize=1024)
def _mapping(text: bytes, resolve: Resolve | None) -> PartitionMapping:
    return mapping_from_json(canonical.loads(text), resolve)


def _retry_json(retry: Retry) -> dict[str, Any]:
    return {
        "attempts": retry.attempts,
        "delay_ms": retry.delay // _MILLISECOND,
        "factor": retry.factor,
        "cap_ms": retry.cap // _MILLISECOND,
        "jitter": retry.jitter,
        "on": list(retry.on),
    }


def _retry(data: dict[str, Any] | None) -> Retry:
    if data is None:
        return Retry()
    return Retry(
        attempts=data["attempts"],
        delay=data["delay_ms"] * _MILLISECOND,
        factor=data["factor"],
        cap=data["cap_ms"] * _MILLISECOND,
        jitter=data["jitter"],
        on=tuple(data["on"]),
    )


def _approval_json(approval: Approval) -> dict[str, Any]:
    return {
        "approvers": approval.approvers,
        "four_eyes": approval.four_eyes,
        "deadline_seconds": None if approval.deadline is None else max(1, approval.deadline // _SECOND),
        "on_deadline": approval.on_deadline,
        **_given(escalate_to=None if approval.escalate_to == ADMIN else approval.escalate_to),
    }


def _approval(data: dict[str, Any] | None) -> Approval | None:
    if data is None:
        return None
    seconds = data["deadline_seconds"]
    return Approval(
        data["approvers"],
        data["four_eyes"],
        None if seconds is None else seconds * _SECOND,
        data["on_deadline"],
        data.get("escalate_to", ADMIN),
    )


# ── schedules and sensors ────────────────────────────────────────────────────────────────────────────────────────

# What tells a schedule or sensor that a project declares from one that a person made: the former goes with its code.
DECLARED = "declared"


def schedule_of(schedule: Schedule, schedule_id: str, version: int, *, enabled: bool) -> events.ScheduleDefinition:
    return events.ScheduleDefinition(
        schedule_id=schedule_id,
        version=version,
        name=schedule.name,
        cron=schedule.cron,
        asset_selection=[schedule.select],
        timezone=schedule.timezone,
        catchup_window_minutes=schedule.catchup // timedelta(minutes=1),
        max_catchup_ticks=schedule.max_catchup_ticks,
        overlap=schedule.overlap,
        enabled=enabled,
        settings={
            DECLARED: {"enabled": schedule.enabled},
            "partitions": schedule.partitions,
            "tags": dict(schedule.tags),
            "source": _place(schedule.source),
            **_given(
                function=None if schedule.function is None else True,
                code_version=schedule.code_version,
                description=schedule.description,
            ),
        },
    )


def sensor_of(sensor: Sensor, sensor_id: str, version: int, *, enabled: bool) -> events.SensorDefinition:
    return events.SensorDefinition(
        sensor_id=sensor_id,
        version=version,
        name=sensor.name,
        kind=sensor.kind,
        min_interval_seconds=sensor.min_interval // _SECOND,
        enabled=enabled,
        settings={
            DECLARED: {"enabled": sensor.enabled},
            "description": sensor.description,
            "source": _place(sensor.source),
            **_given(
                code_version=sensor.code_version,
                timeout_seconds=None if sensor.timeout is None else sensor.timeout // _SECOND,
                watch=None if sensor.watch is None else sensor.watch.to_json(),
                select=sensor.select,
                partitions=sensor.partitions,
            ),
        },
    )


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _place(source: Source | None) -> dict[str, Any] | None:
    return None if source is None else {"file": source.file, "line": source.line}


# ── have they changed? ───────────────────────────────────────────────────────────────────────────────────────────


def fingerprint(
    assets: Iterable[events.AssetDefinition],
    schedules: Iterable[events.ScheduleDefinition],
    sensors: Iterable[events.SensorDefinition],
) -> str:
    """The hash of what a project declares: without ids and versions, which it does not, and without line numbers."""
    return canonical.sha256_hex(
        {
            "v": 1,
            "assets": sorted((declared_fields(one) for one in assets), key=lambda one: str(one["asset_key"])),
            "schedules": sorted((declared_fields(one) for one in schedules), key=lambda one: str(one["name"])),
            "sensors": sorted((declared_fields(one) for one in sensors), key=lambda one: str(one["name"])),
        }
    )


# Whether a schedule is on is up to people, once it is deployed; what its code says of that is under `declared`. What a
# code version covers is in the version itself.
_NOT_DECLARED = frozenset(
    {"asset_id", "schedule_id", "sensor_id", "version", "enabled", "clock_since", "reached", "same_code_as"}
)


def declared_fields(
    one: events.AssetDefinition | events.ScheduleDefinition | events.SensorDefinition,
) -> dict[str, Any]:
    """The fields of a definition that the project declares."""
    # Every field, also those that have their default: what is left out of the stored form must not matter here.
    data = {key: value for key, value in msgspec.structs.asdict(one).items() if key not in _NOT_DECLARED}
    data["settings"] = dict(one.settings)
    source = data["settings"].pop("source", None) or {}
    data["settings"]["file"] = source.get("file")
    if isinstance(one, events.AssetDefinition):
        data["dependencies"] = [[dependency.asset_key, dependency.mapping] for dependency in one.dependencies]
    return data
