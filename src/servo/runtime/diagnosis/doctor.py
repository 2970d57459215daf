"""Checks of a project, part by part, each with what to do about it. Nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from servo.errors import LedgerNotFound, ServoError
from servo.events import EVENT_CLASSES, GENESIS, chain
from servo.ids import ulid_time
from servo.ledger.protocol import Head
from servo.ledger.sql import migrations
from servo.runtime.access.secrets import permission_problem, secret_path, secret_problem
from servo.runtime.diagnosis.machine import Check, disks, failed, good, machine, problem, spark, storage, warning
from servo.runtime.settings import Setting, Settings, unknown_variables

if TYPE_CHECKING:
    from servo.projections import Manifest
    from servo.runtime.wiring import Project

_CHAIN_EVENTS = 1_000
_CLOCK_SLACK_SECONDS = 5.0
_KNOWN_TYPES = {kind.event_type: kind.event_version for kind in EVENT_CLASSES}


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All checks, and the settings in use with their origin."""

    ok: bool
    checks: list[Check]
    settings: list[Setting] = []

    def with_checks(self, more: Iterable[Check]) -> Diagnosis:
        return _diagnosis([*self.checks, *more], self.settings)


def examine(project: Project, environ: Mapping[str, str] = os.environ) -> Diagnosis:
    """Everything about a project and the machine it is on."""
    settings = project.settings
    checks = [
        _settings(settings, environ),
        *machine(environ),
        spark(settings, environ),
        *_secret(settings, environ),
        *_ledger(project),
        *disks(settings),
        *storage(settings, environ),
    ]
    return _diagnosis(checks, settings.shown())


def examine_without_settings(problem: ServoError, environ: Mapping[str, str] = os.environ) -> Diagnosis:
    """What can be said where the settings cannot be read."""
    return _diagnosis([failed("settings", problem), *machine(environ)], [])


def _diagnosis(checks: list[Check], settings: list[Setting]) -> Diagnosis:
    return Diagnosis(ok=all(check.level != "problem" for check in checks), checks=checks, settings=settings)


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────────


def _settings(settings: Settings, environ: Mapping[str, str]) -> Check:
    unknown = unknown_variables(environ)
    if unknown:
        named = ", ".join(f"{name} (is {meant} meant?)" if meant else name for name, meant in unknown)
        return warning("settings", f"no setting is named {named}", "correct the variable, or unset it")
    return good("settings", str(settings.source or "defaults: no servo.toml and no [tool.servo] here or above"))


def _secret(settings: Settings, environ: Mapping[str, str]) -> Iterator[Check]:
    path = secret_path(settings)
    if "SERVO_SECRET" in environ:
        is_set = bool(environ["SERVO_SECRET"].strip())
        yield (
            good("secret", "from SERVO_SECRET")
            if is_set
            else problem("secret", "SERVO_SECRET is empty", "give it a long random text, or unset it")
        )
        return
    with suppress(OSError):  # where there is none yet, it is minted when it is first needed
        wrong = permission_problem(path)
        yield problem("secret", wrong, f"run `chmod 600 {path}`") if wrong else good("secret", str(path))


# ── the workspace ────────────────────────────────────────────────────────────────────────────────────────────────


def _ledger(project: Project) -> Iterator[Check]:
    """The ledger, and if it can be read all that depends on it."""
    try:
        head = project.ledger.head()
    except LedgerNotFound as problem:
        yield warning("ledger", problem.message, problem.hint)
        return
    except ServoError as problem:
        yield failed("ledger", problem)
        return
    yield good(
        "ledger", f"{head.position} events, {head.position - head.trimmed_position} of them live; {_schema(project)}"
    )
    for name, examined in (
        ("ledger's secret", _ledgers_secret),
        ("chain", _chain),
        ("clock", _clock),
        ("archive", _archive),
        ("projections", _projections),
    ):
        try:
            yield from examined(project, head)
        except ServoError as problem:
            yield failed(name, problem)


def _ledgers_secret(project: Project, head: Head, environ: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Whether run ids follow from the same secret here as they did before, on whichever machine."""
    wrong = secret_problem(project, environ)
    if wrong is not None:
        yield problem("ledger's secret", wrong.message, str(wrong.hint))
    elif head.position:
        yield good("ledger's secret", "is the one of this machine")


def _schema(project: Project) -> str:
    """Of which version its tables are: opened, they were brought up to date, and newer ones refused."""
    backend = "postgres" if project.settings.ledger.startswith("postgres") else "sqlite"
    return f"{backend}, schema version {len(migrations(backend))}"


def _chain(project: Project, head: Head) -> Iterator[Check]:
    start = max(head.position - _CHAIN_EVENTS, 0)
    before = project.history.read(start - 1, 1) if start else []
    chain_hash = before[0].chain_hash if before else GENESIS
    newer: set[str] = set()
    for events in project.history.batches(start, head.position):
        for event in events:
            if event.chain_hash != chain(chain_hash, event):
                detail = f"event {event.event_id} at position {event.position} does not follow from the one before it"
                yield problem("chain", detail, "run `servo ledger verify` to see what was changed")
                return
            chain_hash = event.chain_hash
            if event.event_version > _KNOWN_TYPES.get(event.event_type, 0):
                newer.add(f"{event.event_type} version {event.event_version}")
    if chain_hash != head.chain_hash:
        yield problem("chain", "the ledger's head is not its last event", "run `servo ledger verify`")
        return
    yield good("chain", f"the newest {head.position - start} events follow from each other")
    if newer:
        yield warning("events", f"unknown: {', '.join(sorted(newer))}", "upgrade Servo, then run `servo ledger replay`")


def _clock(project: Project, head: Head) -> Iterator[Check]:
    now = project.clock()
    if head.event_id is None:
        yield good("clock", f"{now:%Y-%m-%dT%H:%M:%SZ}")
        return
    ahead = (ulid_time(head.event_id) - now).total_seconds()
    if ahead > _CLOCK_SLACK_SECONDS:
        detail = f"the newest event was recorded {ahead:.0f} seconds from now"
        yield warning("clock", detail, "set this machine's clock; it was ahead then, or is behind now")
    else:
        yield good("clock", f"{now:%Y-%m-%dT%H:%M:%SZ}, the newest event is {max(-ahead, 0):.0f} seconds old")


def _archive(project: Project, head: Head) -> Iterator[Check]:
    archive = project.archive
    segments = archive.segments
    if archive.last_position < head.trimmed_position:
        yield problem(
            "archive",
            f"events {archive.last_position + 1}–{head.trimmed_position} were moved there, and it does not hold them",
            "restore the archive folder, or point Servo to where it is now",
        )
        return
    wrong = [path for segment in segments if _size(path := archive.path(segment)) != segment.bytes]
    if wrong:
        yield problem("archive", _files(wrong), "restore them from a copy of the archive folder")
    elif segments:
        yield good("archive", f"{archive.last_position} events, files: {len(segments)}")
    else:
        yield good("archive", "nothing is archived")


def _projections(project: Project, head: Head) -> Iterator[Check]:
    # DuckDB comes with this import.
    from servo.projections.manifest import require_intact  # noqa: PLC0415

    store = project.store
    manifest = store.current()
    mark = manifest.watermark
    replay = "run `servo ledger replay`; the ledger is not affected"
    for table, files in manifest.tables.items():
        for file in files:
            # Read from end to end, also where this process has done so before: a doctor looks again.
            require_intact(store.path(table, file), file, again=True)
    at_mark = project.history.read(mark.position - 1, 1) if 0 < mark.position <= head.position else []
    if mark.position > head.position or (at_mark and at_mark[0].chain_hash != mark.chain_hash):
        yield problem("projections", f"those in {store.root} belong to another ledger", replay)
        return
    yield _lag(project, head, manifest)


def _lag(project: Project, head: Head, manifest: Manifest) -> Check:
    behind = head.position - manifest.watermark.position
    count = sum(len(files) for files in manifest.tables.values())
    text = f"version {manifest.version}, {count} files" if manifest.version else "none yet"
    text += f", {behind} events behind the ledger" if behind else ", up to date"
    if behind > project.settings.tail.events:
        return warning("projections", text, "run `servo ledger compact`, or any query")
    return good("projections", text)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _files(paths: list[Path]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"missing, or not of the size that was written: {paths[0]}{more}"
