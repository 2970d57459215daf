"""Whether the tenant's secret of this machine is the one that the ledger's runs are named by.

Run ids follow from the secret. Two machines with different secrets on one ledger would give one request two ids, and
nobody would notice; so the ledger's database knows a fingerprint of the secret, and who has another cannot write.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from servo.errors import ForeignSecret
from servo.ids import run_id
from servo.ledger.address import without_password
from servo.runtime.secrets import Secret, secret_path, tenant_secret
from servo.runtime.settings import Settings

if TYPE_CHECKING:
    from servo.runtime.wiring import Project

__all__ = ["fingerprint_of", "require_own_secret", "require_secret_may_be_minted", "secret_problem"]

_DOMAIN = b"\0servo tenant secret fingerprint\0"  # no run key begins so: this is no run's id
_PATIENCE = 60.0  # seconds for the tail to be folded
# Ids of another form were not made from a secret.
_RUN_ID = re.compile(r"run_[a-z2-7]{26}")
_OLDEST_RUNS = """
    SELECT run_key, run_id FROM runs
    WHERE requested_version IS NOT NULL AND run_key IS NOT NULL ORDER BY requested_version LIMIT 100
"""


def fingerprint_of(tenant: str, secret: Secret) -> str:
    """By which a secret is known, and from which it cannot be told."""
    return hmac.new(secret.value, _DOMAIN + tenant.encode(), sha256).hexdigest()


def require_own_secret(project: Project) -> None:
    """Refuse a secret that is not the ledger's. A ledger that knows none takes this one, if its runs fit it."""
    tenant, known = project.workspace.tenant, project.fingerprints.find(project.workspace.tenant)
    if known is None:
        if not _names_oldest_run(project, project.secret):
            raise _foreign(project.settings, os.environ)
        known = project.fingerprints.record(tenant, fingerprint_of(tenant, project.secret))
    if not hmac.compare_digest(known, fingerprint_of(tenant, project.secret)):
        raise _foreign(project.settings, os.environ)


def require_secret_may_be_minted(project: Project) -> None:
    """Refuse to mint a secret in a home that has none, where the ledger was begun with another."""
    if project.unbegun or _has_secret(project.settings, os.environ):
        return
    if project.fingerprints.find(project.workspace.tenant) is not None:
        raise _missing(project.settings)


def secret_problem(project: Project, environ: Mapping[str, str]) -> ForeignSecret | None:
    """What keeps this machine from writing. Writes nothing, and mints no secret."""
    known = project.fingerprints.find(project.workspace.tenant)
    if not _has_secret(project.settings, environ):
        return None if known is None else _missing(project.settings)
    secret = tenant_secret(project.settings, environ=environ)
    if known is None:
        fits = _names_oldest_run(project, secret)
    else:
        fits = hmac.compare_digest(known, fingerprint_of(project.workspace.tenant, secret))
    return None if fits else _foreign(project.settings, environ)


def _names_oldest_run(project: Project, secret: Secret) -> bool:
    """Whether the oldest run was named by this secret; also where there is none."""
    if not project.ledger.head().position:
        return True
    rows = project.reader.query(_OLDEST_RUNS, fresh=True, timeout=_PATIENCE).rows
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
