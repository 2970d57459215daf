"""The settings of a project: read once, from one file and the environment, and frozen.

The file is `servo.toml`, or the table `[tool.servo]` of `pyproject.toml`, in the current folder or the nearest one
above it. Every setting can be overridden by an environment variable named after it: `tail.events` by
`SERVO_TAIL_EVENTS`; only tables of free names (`spark.conf`, `limits.pools`, `approvals`) have none. A relative path
in the file starts at the file's folder, one in the environment at the current folder.

A new setting is a field of one of the classes below, and a new table is a class and a field of `Settings`: names,
variables, checks and what is shown follow from the fields.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from servo import decoders
from servo.errors import InvalidAssetKey, InvalidName, InvalidSettings
from servo.execution.settings import BatchSettings, SparkSettings, shown_address, shown_conf
from servo.ids import AssetKey, check_name
from servo.planning.backfills import UpstreamLimits

DEFAULT = "default"
_HOME = ".servo"
_SCHEMES = ("sqlite", "postgresql", "postgres", "memory")

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Duration = Annotated[float, msgspec.Meta(ge=0)]
_Name = Annotated[str, msgspec.Meta(min_length=1)]
_Pulse = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class TailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much newer than the files an ordinary read may look before it compacts."""

    events: _Count = 5_000
    age_seconds: _Duration = 60.0
    fold_ms: _Duration = 200.0


class VersionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which versions of the projections are kept, to begin from when the past is asked for: the newest, the last of
    each hour for some days, of each day for some more, and of each month for some years or, with None, for ever."""

    newest: _Count = 16
    hourly_days: Annotated[int, msgspec.Meta(ge=0)] = 2
    daily_days: Annotated[int, msgspec.Meta(ge=0)] = 31
    monthly_years: Annotated[int, msgspec.Meta(ge=0, le=1_000)] | None = None


class CompactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much memory folding and merging may take, beside what the process itself takes."""

    memory_mb: Annotated[int, msgspec.Meta(ge=64)] = 512


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much happens at the same time: tasks and runs at all, partitions of one task, tasks of each pool."""

    tasks: _Count = 4
    runs: _Count = 10
    threads: _Count = 4
    check_rows: Annotated[int, msgspec.Meta(ge=0, le=20)] = 3  # of a failed check, shown and recorded
    pools: dict[str, _Count] = {}


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long a worker may be silent before it is given up for lost, and how often it says that it is alive."""

    lease_seconds: _Pulse = 15.0
    heartbeat_seconds: _Pulse = 3.0


class SensorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How sensors, and the functions of schedules, are evaluated: in how many processes that are kept, with how much
    memory beside what the project itself takes, and for how long where a sensor does not say."""

    processes: _Count = 4
    memory_mb: Annotated[int, msgspec.Meta(ge=16)] = 1_024
    timeout_seconds: _Pulse = 60.0


class RetentionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which materializations keep their data: the newest `versions`, those of the last `days`; None is all of them.

    Files that nothing refers to are removed when they are `grace_hours` old: a younger one may be on its way.
    """

    versions: _Count | None = None
    days: _Count | None = None
    grace_hours: Annotated[int, msgspec.Meta(ge=0)] = 24


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where `servo up` listens. Any other than a loopback address demands tokens; port 0 is any free one."""

    host: _Name = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 8765


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as it is in use, fit to be shown, and where it comes from."""

    key: str
    value: str
    origin: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a project, with absolute paths. `origins` says where each one comes from.

    `root` is the project's folder: that of the file (`source`), or the current one where there is no file.
    """

    root: Path
    home: Path
    ledger: str
    tenant: str = "default"
    workspace: str = "default"
    namespace: str = "default"
    definitions: str | None = None
    storage: str
    storage_timeout_seconds: _Pulse = 60.0  # that one call to a remote storage may take
    projections: Path
    archive: Path
    idempotency_days: _Count = 7
    approvals: dict[str, list[_Name]] = {}  # who has which role, by the names that they are known by
    tail: TailSettings = TailSettings()
    versions: VersionSettings = VersionSettings()
    compaction: CompactionSettings = CompactionSettings()
    spark: SparkSettings = SparkSettings()
    limits: LimitSettings = LimitSettings()
    batch: BatchSettings = BatchSettings()
    worker: WorkerSettings = WorkerSettings()
    retention: RetentionSettings = RetentionSettings()
    backfill: UpstreamLimits = UpstreamLimits()
    server: ServerSettings = ServerSettings()
    sensors: SensorSettings = SensorSettings()
    source: Path | None = None
    origins: dict[str, str] = {}

    def __repr__(self) -> str:
        shown = ", ".join(f"{setting.key}={setting.value}" for setting in self.shown())
        return f"Settings({shown})"

    def shown(self) -> list[Setting]:
        """Every setting with its origin; passwords, tokens and the like are left out."""
        values = ((key, _as_shown(key, getattr(self, key))) for key in _PLAIN)
        nested = (pair for name in _TABLES for pair in _shown_of(name, getattr(self, name)))
        return [
            Setting(key=key, value=value, origin=self.origins.get(key, DEFAULT)) for key, value in (*values, *nested)
        ]


_FIELDS = {
    name: str if kind is Path else kind
    for name, kind in get_type_hints(Settings, include_extras=True).items()
    if name not in ("root", "source", "origins")
}
_TABLES: dict[str, type[msgspec.Struct]] = {
    name: kind for name, kind in _FIELDS.items() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
}
_PLAIN = tuple(name for name in _FIELDS if name not in _TABLES)
# The settings as somebody writes them: every one may be left out.
_Raw = msgspec.defstruct("_Raw", [(name, kind | None, None) for name, kind in _FIELDS.items()], kw_only=True)
_TYPES: dict[str, Any] = {
    **{name: _FIELDS[name] for name in _PLAIN},
    **{
        f"{name}.{key}": kind
        for name, table in _TABLES.items()
        for key, kind in get_type_hints(table, include_extras=True).items()
    },
}
_KEYS = tuple(_TYPES)
VARIABLES = {
    f"SERVO_{key.replace('.', '_').upper()}": key
    for key, kind in _TYPES.items()
    if dict not in [get_origin(one) for one in (kind, *get_args(kind))]
}
# Read elsewhere, so no setting and no mistake either.
OTHER_VARIABLES = frozenset(
    {"SERVO_SECRET", "SERVO_FAULTS", "SERVO_URL", "SERVO_TOKEN", "SERVO_LOG", "SERVO_SESSIONS_LOST"}
)
# Spark's own variable: whoever set it wants it to hold here too.
_SPARK_REMOTE = "SPARK_REMOTE"


class _Given(msgspec.Struct, frozen=True):
    """A value as it was given, by which file or variable, and the folder at which its relative paths start."""

    value: Any
    origin: str
    folder: Path


def load_settings(folder: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings that hold in a folder (the current one by default)."""
    try:
        here = (folder or Path.cwd()).absolute()
    except FileNotFoundError:
        raise InvalidSettings("the current folder is gone", hint="change to one that is there") from None
    file, table = _find(here)
    variables = os.environ if environ is None else environ
    given: dict[str, _Given] = {}
    if remote := variables.get(_SPARK_REMOTE, "").strip():
        given["spark.remote"] = _Given(remote, _SPARK_REMOTE, here)
    if file is not None:
        given |= {key: _Given(value, str(file), file.parent) for key, value in _flat(file, table)}
    for name, key in VARIABLES.items():
        text = variables.get(name)
        if text is not None:
            given[key] = _Given(_from_text(name, key, text), name, here)
    return _settings(given, file, here if file is None else file.parent)


def unknown_variables(environ: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """Variables that look like settings and are none, each with the one that was probably meant."""
    known = {*VARIABLES, *OTHER_VARIABLES}
    names = sorted(name for name in environ if name.startswith("SERVO_") and name not in known)
    return [(name, _closest(name, known)) for name in names]


# ── finding and reading ──────────────────────────────────────────────────────────────────────────────────────────


def _find(here: Path) -> tuple[Path | None, dict[str, Any]]:
    """The nearest file that has settings, and what it says."""
    for folder in (here, *here.parents):
        own, shared = folder / "servo.toml", folder / "pyproject.toml"
        table = _tool_table(shared)
        if own.is_file():
            if table is not None:
                raise InvalidSettings(
                    f"both {own} and [tool.servo] of {shared} hold settings", hint="keep one of the two"
                )
            return own, _parsed(own)
        if table is not None:
            return shared, table
    return None, {}


def _tool_table(pyproject: Path) -> dict[str, Any] | None:
    if not pyproject.is_file():
        return None
    tool = _parsed(pyproject).get("tool", {})
    table = tool.get("servo") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise InvalidSettings(f"{pyproject}: tool.servo is not a table", hint="write [tool.servo] and keys below it")
    return table


def _parsed(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InvalidSettings(f"{file}: {problem.strerror}", hint="make it readable") from problem
    except ValueError as problem:  # not TOML, or not UTF-8
        raise InvalidSettings(f"{file} is not TOML: {problem}", hint="mend that line") from problem


def _flat(file: Path, table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Checked values by key, those of `[tail]` as `tail.…`."""
    for key in table.keys() - {*_PLAIN, *_TABLES}:
        raise _unknown(file, key, (*_PLAIN, *_TABLES))
    nested = {name: table[name] for name in _TABLES if isinstance(table.get(name), dict)}
    for name, values in nested.items():
        fields = _TABLES[name].__struct_fields__
        for key in values.keys() - set(fields):
            raise _unknown(file, f"{name}.{key}", [f"{name}.{field}" for field in fields])
    if isinstance(conf := nested.get("spark", {}).get("conf"), dict):
        texts = list(_spark_conf(file, conf))
        if twice := next((name for name, _ in texts if [text for text, _ in texts].count(name) > 1), None):
            raise InvalidSettings(f"{file}: spark.conf has {twice!r:.80} twice", hint="keep one, in quotes or without")
        nested["spark"] = nested["spark"] | {"conf": dict(texts)}
    table = table | nested
    try:
        checked = decoders.convert(table, _Raw)
    except msgspec.ValidationError as problem:
        what, _, path = str(problem).partition(" - at `$.")
        hint = f"{what.replace('`', '')}".replace("Expected", "expected")
        raise InvalidSettings(f"{file}: {path.rstrip('`')} has a value that it cannot have", hint=hint) from None
    for key in table.keys() - nested.keys():
        yield key, getattr(checked, key)
    for name, values in nested.items():
        yield from ((f"{name}.{key}", getattr(getattr(checked, name), key)) for key in values)


def _spark_conf(file: Path, table: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Spark's settings as text. To TOML, a dotted name without quotes is tables in tables; here it is that name."""
    for key, value in table.items():
        name = f"{before}{key}"
        match value:
            case dict():
                yield from _spark_conf(file, value, f"{name}.")
            case bool():
                yield name, str(value).lower()
            case str() | int() | float():
                yield name, str(value)
            case _:
                raise InvalidSettings(
                    f"{file}: spark.conf: {name!r:.80} has a value that it cannot have",
                    hint="expected text, a number, true or false",
                )


def _unknown(file: Path, key: str, known: Iterable[str]) -> InvalidSettings:
    """An unknown name: written wrongly, or at home in another table or in none."""
    last = key.rpartition(".")[2]
    elsewhere = next((name for name in _KEYS if name.rpartition(".")[2] == last), None)
    meant = elsewhere or _closest(key, known) or _closest(last, _KEYS)
    hint = f"did you mean {meant}?" if meant else f"known are {', '.join(known)}"
    return InvalidSettings(f"{file}: there is no setting {key!r:.80}", hint=hint)


def _closest(name: str, known: Iterable[str]) -> str | None:
    return next(iter(get_close_matches(name, sorted(known), n=1, cutoff=0.7)), None)


def _from_text(name: str, key: str, text: str) -> Any:
    if not text.strip():
        raise InvalidSettings(f"{name} is empty", hint="unset it to use the setting of the project")
    try:
        return decoders.convert(text, _TYPES[key], strict=False)
    except msgspec.ValidationError as problem:
        hint = str(problem).replace("`", "").replace("Expected", "expected")
        raise InvalidSettings(f"{name}={text!r:.80} is not a value that it can have", hint=hint) from None


# ── putting together ─────────────────────────────────────────────────────────────────────────────────────────────


def _settings(given: dict[str, _Given], file: Path | None, root: Path) -> Settings:
    values = {key: _READERS[key](key, one) if key in _READERS else one.value for key, one in given.items()}
    home = values.get("home", root / _HOME)
    defaults = {
        "home": home,
        "ledger": f"sqlite:{home / 'ledger.db'}",
        "storage": str(home / "storage"),
        "projections": home / "projections",
        "archive": home / "archive",
    }
    tables: dict[str, Any] = {
        name: kind(**{key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{name}.")})
        for name, kind in _TABLES.items()
    }
    _check_pulse(tables["worker"], given)
    plain = {key: value for key, value in values.items() if key in _PLAIN}
    origins = {key: one.origin for key, one in given.items()}
    return Settings(root=root, source=file, origins=origins, **(defaults | plain | tables))


def _path(key: str, given: _Given) -> Path:
    if not given.value or "\0" in given.value:
        raise InvalidSettings(f"{given.origin}: {key} is not a path", hint="give a folder")
    return _absolute(given.value, given.folder)


def _absolute(text: str, folder: Path) -> Path:
    try:
        return Path(os.path.normpath(folder / Path(text).expanduser()))
    except RuntimeError:  # no such user
        return folder / text


def _name(key: str, given: _Given) -> str:
    try:
        return check_name(given.value, key)
    except InvalidName as problem:
        raise InvalidSettings(f"{given.origin}: {key}: {problem.message}", hint=problem.hint) from None


def _ledger(key: str, given: _Given) -> str:
    address: str = given.value
    scheme, colon, rest = address.partition(":")
    if not colon or scheme not in _SCHEMES:
        # Only how it starts: the rest may hold a password.
        raise InvalidSettings(
            f"{given.origin}: the address of a ledger cannot start with {scheme + colon!r:.40}",
            hint="use sqlite:PATH or postgresql://user@host/database",
        )
    if scheme != "sqlite":
        return address
    path = rest.removeprefix("//")
    if not path or "\0" in path:
        raise InvalidSettings(f"{given.origin}: {key} names no file", hint="write sqlite:PATH")
    return f"sqlite:{_absolute(path, given.folder)}"


def _storage(key: str, given: _Given) -> str:
    if "://" in given.value:
        return str(given.value)
    if not given.value or "\0" in given.value:
        raise InvalidSettings(f"{given.origin}: {key} is not a path", hint="give a folder or an address")
    return str(_absolute(given.value, given.folder))


def _namespace(key: str, given: _Given) -> str:
    try:
        return AssetKey(namespace=given.value, name="x").namespace
    except InvalidAssetKey:
        raise InvalidSettings(
            f"{given.origin}: {key}: {given.value!r:.80} cannot be the first part of an asset key",
            hint="use lower-case letters, digits and _, a letter first",
        ) from None


def _definitions(key: str, given: _Given) -> str:
    if not given.value.strip() or "\0" in given.value:
        raise InvalidSettings(
            f"{given.origin}: {key} names nothing", hint="give a module, a file or a folder, or leave it out"
        )
    return str(given.value)


def _remote(key: str, given: _Given) -> str:
    # Not quoted: the address may hold a token. What Spark's own variable says is for Spark to judge.
    if given.origin != _SPARK_REMOTE and not given.value.startswith(("sc://", "local")):
        raise InvalidSettings(
            f"{given.origin}: {key} is not the address of a Spark Connect server",
            hint="write sc://host:port, or set spark.master for a cluster",
        )
    return str(given.value)


# What is checked, or made absolute, beyond its type.
_READERS: dict[str, Callable[[str, _Given], Any]] = {
    **dict.fromkeys(("home", "projections", "archive"), _path),
    **dict.fromkeys(("tenant", "workspace"), _name),
    "ledger": _ledger,
    "storage": _storage,
    "namespace": _namespace,
    "definitions": _definitions,
    "spark.remote": _remote,
}


def _check_pulse(worker: WorkerSettings, given: dict[str, _Given]) -> None:
    """Refuse a lease that does not outlive two heartbeats: one may be lost or late."""
    if worker.lease_seconds > 2 * worker.heartbeat_seconds:
        return
    keys = ("worker.lease_seconds", "worker.heartbeat_seconds")
    origin = next(given[key].origin for key in keys if key in given)
    raise InvalidSettings(
        f"{origin}: worker.lease_seconds is {worker.lease_seconds:g}, and two heartbeats take"
        f" {2 * worker.heartbeat_seconds:g}",
        hint="make it more than twice worker.heartbeat_seconds",
    )


# ── showing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _shown_of(name: str, table: msgspec.Struct) -> Iterator[tuple[str, str]]:
    for field in table.__struct_fields__:
        key = f"{name}.{field}"
        yield key, _as_shown(key, getattr(table, field))


def _as_shown(key: str, value: Any) -> str:
    if value is None or value == {}:
        return "none"
    if key == "approvals":
        return "; ".join(f"{role}: {', '.join(names) or 'nobody'}" for role, names in value.items())
    if isinstance(value, dict):
        return shown_conf(value)
    return shown_address(value) if key in ("ledger", "storage", "spark.master", "spark.remote") else str(value)
