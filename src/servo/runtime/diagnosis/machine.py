"""Checks of this machine: Python, Java, Spark and the disks, without starting anything."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec

from servo.errors import InvalidSettings, JavaMissing, ServoError, SparkUnavailable, StorageFailed
from servo.execution.settings import shown_address
from servo.execution.spark_target import require_java, target
from servo.runtime.settings import Settings

__all__ = [
    "Check",
    "disks",
    "failed",
    "good",
    "machine",
    "problem",
    "require_remote_storage",
    "spark",
    "storage",
    "warning",
]

Level = Literal["ok", "warning", "problem"]

_PYTHON = (3, 11)
_FEW_BYTES, _TOO_FEW_BYTES = 2 << 30, 200 << 20
_CORE = "spark-core_*.jar"
_PROBE_SECONDS = 15.0  # for a remote store to answer somebody who waits for it
_JAR_SETTINGS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
_HADOOP_AWS = ("org.apache.hadoop:hadoop-aws", "hadoop-aws-*.jar")
_GCS = ("com.google.cloud.bigdataoss:gcs-connector", "gcs-connector*.jar")
_AZURE = ("org.apache.hadoop:hadoop-azure", "hadoop-azure-*.jar")
_CONNECTORS = {"s3": _HADOOP_AWS, "s3a": _HADOOP_AWS, "gs": _GCS, "gcs": _GCS, "abfs": _AZURE, "abfss": _AZURE}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at; `remedy` says what to do unless all is well."""

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


def machine(environ: Mapping[str, str]) -> Iterator[Check]:
    python = platform.python_version()
    if sys.version_info >= _PYTHON:
        yield good("python", python)
    else:
        yield problem("python", python, "use Python 3.11 or newer")
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
    """Where sessions are to run, and whether what they need is there: somebody who answers, or the JARs."""
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
    """Ask a remote store for what is there; StorageFailed where it does not answer soon."""
    # Arrow comes with this import, and a folder needs none of it.
    from servo.execution.files import require_storage  # noqa: PLC0415

    require_storage(settings.storage, min(settings.storage_timeout_seconds, _PROBE_SECONDS))


def storage(settings: Settings, environ: Mapping[str, str]) -> Iterator[Check]:
    """Whether a remote store answers, and whether Spark has what it takes to write there; nothing of a folder."""
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
