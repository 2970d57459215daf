"""What a project has decided: read once, from one file and the environment, and frozen.

The file is `servo.toml`, or the table `[tool.servo]` of `pyproject.toml`, in the current folder or the nearest one
above it. Every setting can be overridden by an environment variable named after it: `tail.events` by
`SERVO_TAIL_EVENTS`. A relative path in the file starts at the file's folder, one in the environment at the current
folder.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import msgspec

from servo.errors import InvalidName, InvalidSettings
from servo.ids import check_name
from servo.ledger.address import without_password

DEFAULT = "default"
_HOME = ".servo"
_SCHEMES = ("sqlite", "postgresql", "postgres", "memory")

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Duration = Annotated[float, msgspec.Meta(ge=0)]


class TailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much newer than the files an ordinary read may look before it compacts."""

    events: _Count = 5_000
    age_seconds: _Duration = 60.0
    fold_ms: _Duration = 200.0


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as it is in use, fit to be shown, and where it comes from."""

    key: str
    value: str
    origin: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a project, with absolute paths. `origins` says where each one comes from."""

    home: Path
    ledger: str
    storage: str
    projections: Path
    archive: Path
    tenant: str = "default"
    workspace: str = "default"
    idempotency_days: _Count = 7
    tail: TailSettings = TailSettings()
    source: Path | None = None
    origins: dict[str, str] = {}

    def __repr__(self) -> str:
        shown = ", ".join(f"{setting.key}={setting.value}" for setting in self.shown())
        return f"Settings({shown})"

    def shown(self) -> list[Setting]:
        """Every setting with its origin; a password in an address is left out."""
        values = {key: getattr(self.tail, key[5:]) if key.startswith("tail.") else getattr(self, key) for key in _KEYS}
        values["ledger"] = without_password(self.ledger)
        values["storage"] = without_password(self.storage)
        return [
            Setting(key=key, value=str(value), origin=self.origins.get(key, DEFAULT)) for key, value in values.items()
        ]


class _Raw(msgspec.Struct, kw_only=True):
    """The settings as somebody writes them: every one may be left out."""

    home: str | None = None
    ledger: str | None = None
    tenant: str | None = None
    workspace: str | None = None
    storage: str | None = None
    projections: str | None = None
    archive: str | None = None
    idempotency_days: _Count | None = None
    tail: TailSettings | None = None


_TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(_Raw) if field.name != "tail"} | {
    f"tail.{field.name}": field.type for field in msgspec.structs.fields(TailSettings)
}
_KEYS = tuple(_TYPES)
VARIABLES = {f"SERVO_{key.replace('.', '_').upper()}": key for key in _KEYS}
# Read elsewhere, so no setting and no mistake either.
OTHER_VARIABLES = frozenset({"SERVO_SECRET", "SERVO_FAULTS", "SERVO_URL"})


class _Said(msgspec.Struct, frozen=True):
    """A value, who says so (to be named in errors), and the folder at which its relative paths start."""

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
    said: dict[str, _Said] = {}
    if file is not None:
        said = {key: _Said(value, str(file), file.parent) for key, value in _flat(file, table)}
    for name, key in VARIABLES.items():
        text = (os.environ if environ is None else environ).get(name)
        if text is not None:
            said[key] = _Said(_from_text(name, key, text), name, here)
    return _settings(said, file, here if file is None else file.parent)


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
    known = {key.partition(".")[0] for key in _KEYS}
    for key in table.keys() - known:
        raise _unknown(file, key, known)
    tail = table.get("tail", {})
    for key in tail.keys() - {key[5:] for key in _KEYS if key.startswith("tail.")} if isinstance(tail, dict) else ():
        raise _unknown(file, f"tail.{key}", _KEYS)
    try:
        msgspec.convert(table, _Raw)
    except msgspec.ValidationError as problem:
        what, _, path = str(problem).partition(" - at `$.")
        hint = f"{what.replace('`', '')}".replace("Expected", "expected")
        raise InvalidSettings(f"{file}: {path.rstrip('`')} has a value that it cannot have", hint=hint) from None
    for key, value in table.items():
        if key == "tail":
            yield from ((f"tail.{name}", limit) for name, limit in value.items())
        else:
            yield key, value


def _unknown(file: Path, key: str, known: Any) -> InvalidSettings:
    meant = _closest(key, known) or _closest(key.rpartition(".")[2], known)
    hint = f"did you mean {meant}?" if meant else f"known are {', '.join(_KEYS)}"
    return InvalidSettings(f"{file}: there is no setting {key!r:.80}", hint=hint)


def _closest(name: str, known: Any) -> str | None:
    return next(iter(get_close_matches(name, sorted(known), n=1, cutoff=0.7)), None)


def _from_text(name: str, key: str, text: str) -> Any:
    if not text.strip():
        raise InvalidSettings(f"{name} is empty", hint="unset it to use the setting of the project")
    try:
        return msgspec.convert(text, _TYPES[key], strict=False)
    except msgspec.ValidationError as problem:
        hint = str(problem).replace("`", "").replace("Expected", "expected")
        raise InvalidSettings(f"{name}={text!r:.80} is not a value that it can have", hint=hint) from None


# ── putting together ─────────────────────────────────────────────────────────────────────────────────────────────


def _settings(said: dict[str, _Said], file: Path | None, root: Path) -> Settings:
    def path(key: str, default: Path) -> Path:
        one = said.get(key)
        if one is None:
            return default
        if not one.value or "\0" in one.value:
            raise InvalidSettings(f"{one.origin}: {key} is not a path", hint="give a folder")
        return _absolute(one.value, one.folder)

    def name(key: str) -> str:
        one = said.get(key)
        if one is None:
            return "default"
        try:
            return check_name(one.value, key)
        except InvalidName as problem:
            raise InvalidSettings(f"{one.origin}: {key}: {problem.message}", hint=problem.hint) from None

    home = path("home", root / _HOME)
    limits = {key[5:]: one.value for key, one in said.items() if key.startswith("tail.")}
    days = said.get("idempotency_days")
    return Settings(
        home=home,
        ledger=_ledger(said.get("ledger"), home),
        storage=_storage(said.get("storage"), home),
        projections=path("projections", home / "projections"),
        archive=path("archive", home / "archive"),
        tenant=name("tenant"),
        workspace=name("workspace"),
        idempotency_days=7 if days is None else days.value,
        tail=TailSettings(**limits),
        source=file,
        origins={key: one.origin for key, one in said.items()},
    )


def _absolute(text: str, folder: Path) -> Path:
    try:
        return Path(os.path.normpath(folder / Path(text).expanduser()))
    except RuntimeError:  # no such user
        return folder / text


def _ledger(said: _Said | None, home: Path) -> str:
    if said is None:
        return f"sqlite:{home / 'ledger.db'}"
    address: str = said.value
    scheme, colon, rest = address.partition(":")
    if not colon or scheme not in _SCHEMES:
        # Only how it starts: the rest may hold a password.
        raise InvalidSettings(
            f"{said.origin}: the address of a ledger cannot start with {scheme + colon!r:.40}",
            hint="use sqlite:PATH or postgresql://user@host/database",
        )
    if scheme != "sqlite":
        return address
    path = rest.removeprefix("//")
    if not path or "\0" in path:
        raise InvalidSettings(f"{said.origin}: ledger names no file", hint="write sqlite:PATH")
    return f"sqlite:{_absolute(path, said.folder)}"


def _storage(said: _Said | None, home: Path) -> str:
    if said is None:
        return str(home / "storage")
    if "://" in said.value:
        return str(said.value)
    if not said.value or "\0" in said.value:
        raise InvalidSettings(f"{said.origin}: storage is not a path", hint="give a folder or an address")
    return str(_absolute(said.value, said.folder))
