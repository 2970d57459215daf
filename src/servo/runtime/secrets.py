"""The secret of a tenant, from which run ids follow. It is never shown: not by repr, not in logs, not in errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from servo.errors import InvalidSettings, StorageFailed
from servo.local_server import write_private
from servo.runtime.settings import Settings

_BYTES = 32
_OTHERS = 0o077  # whatever group and others may do with a file


class Secret:
    """Bytes that do not show themselves."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    @property
    def value(self) -> bytes:
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> str:
        raise TypeError("a secret does not leave its process")


def secret_path(settings: Settings) -> Path:
    return settings.home / "secrets" / f"{settings.tenant}.key"


def tenant_secret(
    settings: Settings,
    *,
    environ: Mapping[str, str] = os.environ,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> Secret:
    """The tenant's secret: SERVO_SECRET, or the one in its file, which is minted when it is first needed."""
    given = environ.get("SERVO_SECRET")
    if given is not None:
        if not given.strip():
            raise InvalidSettings("SERVO_SECRET is empty", hint="give it a long random text, or unset it")
        return Secret(os.fsencode(given))
    path = secret_path(settings)
    try:
        if not path.exists():
            # A secret that was used and then lost would give every run another id: it is on disk before it is used.
            write_private(path, random_bytes(_BYTES).hex().encode() + b"\n", random_bytes)
        return Secret(_read(path))
    except OSError as problem:
        raise StorageFailed(
            f"{path}: {problem.strerror}", hint="make its folder writable, or set SERVO_SECRET"
        ) from problem


def permission_problem(path: Path) -> str | None:
    """What is wrong with who may read a secret's file."""
    mode = path.stat().st_mode & 0o777
    return f"{path} can be read by others (mode {mode:04o})" if mode & _OTHERS else None


def _read(path: Path) -> bytes:
    problem = permission_problem(path)
    if problem is not None:
        raise InvalidSettings(problem, hint=f"run `chmod 600 {path}`")
    try:
        value = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except ValueError:
        value = b""
    if len(value) != _BYTES:
        raise InvalidSettings(
            f"{path} does not hold a secret of {_BYTES} bytes",
            hint="restore it from a copy; a new one would give every run another id",
        )
    return value
