"""Checks of a project and of the machine that it is on, each with what to do about it. Nothing is written."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from servo.errors import InvalidSettings, JavaMissing, LedgerNotFound, ServoError, SparkUnavailable, StorageFailed
from servo.events import EVENT_CLASSES, GENESIS, chain
from servo.execution.settings import shown_address
from servo.execution.spark_target import require_java, target
from servo.ids import ulid_time
from servo.ledger.protocol import Head
from servo.ledger.sql import migrations
from servo.runtime.secrets import permission_problem, secret_path, secret_problem
from servo.runtime.settings import Setting, Settings, unknown_variables

if TYPE_CHECKING:
    from servo.projections import Manifest
    from servo.runtime.wiring import Project

Level = Literal["ok", "warning", "problem"]

_CHAIN_EVENTS = 1_000
_CLOCK_SLACK_SECONDS = 5.0
_KNOWN_TYPES = {kind.event_type: kind.event_version for kind in EVENT_CLASSES}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check; `remedy` says what to do unless all is well."""

    name: str
    level: Level
    detail: str
    remedy: str | None = None


def good(name: str, detail: str) -> Check:
    return Check(name=name, level="ok", detail=detail)


def warning(name: str, detail: str, remedy: str | None) -> Check:
    return Check(name=name, level="warning", detail=detail, remedy=remedy)


def problem(name: str, detail: str, remedy: str | None) -> Check:
    return Check(name=name, level="problem", detail=detail, remedy=remedy)


def failed(name: str, why: ServoError) -> Check:
    return problem(name, why.message, why.hint)


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All checks, and the settings in use with their origin."""

    ok: bool
    checks: list[Check]
    settings: list[Setting] = []

    def with_checks(self, more: Iterable[Check]) -> Diagnosis:
        return _diagnosis([*self.checks, *more], self.settings)


def examine(project: Project, environ: Mapping[str, str] = os.environ) -> Diagnosis:
    """Check a project and the machine that it is on."""
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


def examine_without_settings(problem: ServoError) -> Diagnosis:
    """Check what can be checked where the settings cannot be read."""
    return _diagnosis([failed("settings", problem), *machine(os.environ)], [])


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


def _ledgers_secret(project: Project, head: Head) -> Iterator[Check]:
    """Whether run ids follow from the same secret here as they did before, on whichever machine."""
    wrong = secret_problem(project, os.environ)
    if wrong is not None:
        yield problem("ledger's secret", wrong.message, str(wrong.hint))
    elif head.position:
        yield good("ledger's secret", "is the one of this machine")


def _schema(project: Project) -> str:
    """The version of the ledger's tables: opening brings older ones up to date, and refuses newer ones."""
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


# ── the machine: Python, Java, Spark ─────────────────────────────────────────────────────────────────────────────────


_FEW_BYTES, _TOO_FEW_BYTES = 2 << 30, 200 << 20
_CORE = "spark-core_*.jar"
_PROBE_SECONDS = 15.0  # for a remote store to answer somebody who waits for it
_JAR_SETTINGS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
_HADOOP_AWS = ("org.apache.hadoop:hadoop-aws", "hadoop-aws-*.jar")
_GCS = ("com.google.cloud.bigdataoss:gcs-connector", "gcs-connector*.jar")
_AZURE = ("org.apache.hadoop:hadoop-azure", "hadoop-azure-*.jar")
_CONNECTORS = {"s3": _HADOOP_AWS, "s3a": _HADOOP_AWS, "gs": _GCS, "gcs": _GCS, "abfs": _AZURE, "abfss": _AZURE}


def machine(environ: Mapping[str, str]) -> Iterator[Check]:
    yield good("python", platform.python_version())  # an older one than is needed could not import this
    yield _java(environ)
    for package in ("pyspark", "duckdb", "pyarrow"):
        try:
            yield good(package, metadata.version(package))
        except metadata.PackageNotFoundError:
            yield problem(package, "is not installed", f"run `pip install {package}`")


def _java(environ: Mapping[str, str]) -> Check:
    try:
        return good("java", require_java(environ))
    except JavaMissing as why:
        return failed("java", why)


def spark(settings: Settings, environ: Mapping[str, str]) -> Check:
    """Check where sessions are to run: that the server answers, or that Spark's JARs are there."""
    try:
        found = target(settings.spark)
        found.reach(settings.spark.timeout_seconds)
    except (InvalidSettings, SparkUnavailable) as why:
        return failed("spark", why)
    if found.remote:
        return good("spark", f"a Connect server answers at {found.shown}")
    folder = _jars(environ)
    if folder is None:
        return problem("spark", "PySpark is not installed", "run `pip install pyspark`")
    core = next(iter(sorted(folder.glob(_CORE))), None) if folder.is_dir() else None
    if core is None:
        mend = (
            "correct or unset SPARK_HOME"
            if environ.get("SPARK_HOME")
            else "install it again: `pip install --force-reinstall pyspark`"
        )
        return problem("spark", f"there are no JARs of Spark in {folder}", mend)
    version = core.stem.rpartition("-")[2]
    count = sum(1 for _ in folder.glob("*.jar"))
    text = f"{version} for {found.shown}, JARs: {count} in {folder}"
    try:
        installed = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        installed = version
    if installed.split(".")[:2] != version.split(".")[:2]:
        return problem(
            "spark", f"{text}, and PySpark is {installed}", "unset SPARK_HOME, or install the PySpark of that version"
        )
    return good("spark", text)


def _jars(environ: Mapping[str, str]) -> Path | None:
    """The folder of Spark's JARs: of SPARK_HOME, or those that come with PySpark, which is not imported for it."""
    if home := environ.get("SPARK_HOME"):
        return Path(home) / "jars"
    found = find_spec("pyspark")
    places = None if found is None else found.submodule_search_locations
    return Path(places[0]) / "jars" if places else None


# ── the storage ──────────────────────────────────────────────────────────────────────────────────────────────────


def require_remote_storage(settings: Settings) -> None:
    """List a remote store; StorageFailed where it does not answer soon."""
    # Arrow comes with this import, and a folder needs none of it.
    from servo.execution.files import require_storage  # noqa: PLC0415

    require_storage(settings.storage, min(settings.storage_timeout_seconds, _PROBE_SECONDS))


def storage(settings: Settings, environ: Mapping[str, str]) -> Iterator[Check]:
    """Check that a remote store answers, and that Spark has a connector to it; a folder needs no check."""
    if "://" not in settings.storage or settings.storage.startswith("file://"):
        return
    try:
        require_remote_storage(settings)
    except StorageFailed as why:
        yield failed("storage", why)
        return
    shown = shown_address(settings.storage)
    missing = missing_connector(settings, environ)
    if missing is None:
        yield good("storage", f"{shown} answers")
    else:
        package, pattern = missing
        yield warning(
            "storage",
            f"{shown} answers, but Spark has no {pattern} among its JARs and could not write there",
            f'set "spark.jars.packages" = "{package}:VERSION" below [spark.conf], unless Spark gets it in another way',
        )


def missing_connector(settings: Settings, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The package and the JAR that Spark lacks to write to the storage, as far as that can be seen from here."""
    wanted = _CONNECTORS.get(settings.storage.partition("://")[0].lower())
    spark = settings.spark
    if wanted is None or any(name in spark.conf for name in _JAR_SETTINGS):
        return None
    with suppress(InvalidSettings):
        if target(spark).remote:
            return None  # a Connect server has JARs of its own
    folder = _jars(environ)
    return None if folder is None or any(folder.glob(wanted[1])) else wanted


# ── disks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def disks(settings: Settings) -> Iterator[Check]:
    """The free space wherever something is written, each disk once."""
    places = {"home": settings.home, "projections": settings.projections, "archive": settings.archive}
    if settings.ledger.startswith("sqlite:"):
        places["ledger"] = Path(settings.ledger.removeprefix("sqlite:")).parent
    if "://" not in settings.storage:
        places["storage"] = Path(settings.storage)
    by_disk: dict[int, tuple[Path, list[str]]] = {}
    for name, wanted in places.items():
        # What is not there yet will be where the nearest folder above it is.
        place = next(folder for folder in (wanted, *wanted.parents) if folder.exists())
        try:
            disk = place.stat().st_dev
        except OSError as why:
            yield problem("disk", f"{place}: {why.strerror}", "check the disk")
            continue
        by_disk.setdefault(disk, (place, []))[1].append(name)
    for place, names in by_disk.values():
        yield _disk(place, names)


def _disk(place: Path, names: list[str]) -> Check:
    try:
        free = shutil.disk_usage(place).free
    except OSError as why:
        return problem("disk", f"{place}: {why.strerror}", "check the disk")
    text = f"{free / (1 << 30):.1f} GiB free at {place}, for {', '.join(names)}"
    if free < _TOO_FEW_BYTES:
        return problem("disk", text, "free some space: nothing can be recorded on a full disk")
    return warning("disk", text, "free some space") if free < _FEW_BYTES else good("disk", text)
