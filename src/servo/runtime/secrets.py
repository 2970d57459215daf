"""The secret of a tenant, from which run ids follow. It is never shown: not by repr, not in logs, not in errors."""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from servo.errors import ForeignSecret, InvalidSettings, StorageFailed
from servo.ids import run_id
from servo.ledger.address import without_password
from servo.local_server import write_private
from servo.runtime.settings import Settings

if TYPE_CHECKING:
    from servo.runtime.wiring import Project

__all__ = ["fingerprint_of", "require_own_secret", "require_secret_may_be_minted", "secret_problem"]

_BYTES = 32
_OTHERS = 0o077  # whatever group and others may do with a file
_DOMAIN = b"\0servo tenant secret fingerprint\0"  # no run key begins so: this is no run's id
# Ids of another form were not made from a secret.
_RUN_ID = re.compile(r"run_[a-z2-7]{26}")
_OLDEST_RUNS = """
    SELECT run_key, run_id FROM runs
    WHERE requested_version IS NOT NULL AND run_key IS NOT NULL ORDER BY requested_version LIMIT 100
"""


class Secret:
    """Secret bytes, which no repr shows."""

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
    """The problem if others may read a secret's file."""
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


# ── the ledger's secret ──────────────────────────────────────────────────────────────────────────────────────────────
#
# Run ids follow from the secret. Two machines with different secrets on one ledger would give one request two ids, and
# nobody would notice; so the ledger's database knows a fingerprint of the secret, and who has another cannot write.


def fingerprint_of(tenant: str, secret: Secret) -> str:
    """A fingerprint of a secret, from which the secret cannot be computed."""
    return hmac.new(secret.value, _DOMAIN + tenant.encode(), sha256).hexdigest()


def require_own_secret(project: Project) -> None:
    """Refuse a secret that is not the ledger's. A ledger that knows none takes this one, if its runs fit it."""
    tenant, fingerprint = project.workspace.tenant, fingerprint_of(project.workspace.tenant, project.secret)
    known = project.fingerprints.find(tenant)
    if known is None and _names_oldest_run(project, project.secret):
        known = project.fingerprints.record(tenant, fingerprint)
    if known is None or not hmac.compare_digest(known, fingerprint):
        raise _foreign(project.settings, os.environ)


def require_secret_may_be_minted(project: Project) -> None:
    """Refuse to mint a secret in a home that has none, where the ledger was begun with another."""
    if project.unbegun or _has_secret(project.settings, os.environ):
        return
    if project.fingerprints.find(project.workspace.tenant) is not None:
        raise _missing(project.settings)


def secret_problem(project: Project, environ: Mapping[str, str]) -> ForeignSecret | None:
    """The problem that keeps this machine from writing. Writes nothing, and mints no secret."""
    tenant, known = project.workspace.tenant, project.fingerprints.find(project.workspace.tenant)
    if not _has_secret(project.settings, environ):
        return None if known is None else _missing(project.settings)
    secret = tenant_secret(project.settings, environ=environ)
    if known is None:
        fits = _names_oldest_run(project, secret)
    else:
        fits = hmac.compare_digest(known, fingerprint_of(tenant, secret))
    return None if fits else _foreign(project.settings, environ)


def _names_oldest_run(project: Project, secret: Secret) -> bool:
    """Whether the oldest run was named by this secret; also where there is none."""
    if not project.ledger.head().position:
        return True
    rows = project.query(_OLDEST_RUNS).rows
    scope = project.workspace
    for run_key, found in rows:
        if _RUN_ID.fullmatch(found):
            return bool(found == run_id(scope.tenant, scope.name, run_key, secret.value))
    return True


def _has_secret(settings: Settings, environ: Mapping[str, str]) -> bool:
    return "SERVO_SECRET" in environ or secret_path(settings).exists()


def _foreign(settings: Settings, environ: Mapping[str, str]) -> ForeignSecret:
    own = "SERVO_SECRET" if "SERVO_SECRET" in environ else str(secret_path(settings))
    return ForeignSecret(
        f"the secret of tenant {settings.tenant} in {own} is not the one that the ledger "
        f"{without_password(settings.ledger)} was begun with: the same request would be another run here",
        hint=_remedy(settings),
    )


def _missing(settings: Settings) -> ForeignSecret:
    return ForeignSecret(
        f"the ledger {without_password(settings.ledger)} was begun with a secret of tenant {settings.tenant} that this "
        "machine does not have",
        hint=_remedy(settings),
    )


def _remedy(settings: Settings) -> str:
    path = secret_path(settings)
    return f"copy secrets/{path.name} from the home of the machine that began it to {path}, or give all SERVO_SECRET"
