"""Which backfill is meant: by its name or id, by the request that it was asked for with, and whether a name is free."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, count

from servo.answers.backfills import Backfilled
from servo.errors import BackfillNotFound, Conflict, IdempotencyMismatch, InvalidName
from servo.runtime.backfill_loading import backfills_of
from servo.runtime.wiring import Project

__all__ = ["created_before", "find_backfill", "free_name", "require_free", "require_name", "retried_before", "taken"]

_PATIENCE = 60.0  # seconds for the tail to be folded
_NAME = "abcdefghijklmnopqrstuvwxyz0123456789_-."
_FIND = """
    SELECT backfill_id, name, coalesce(root_backfill_id, backfill_id) AS root FROM backfills
    WHERE created_version IS NOT NULL AND (name = $name OR starts_with(backfill_id, $id))
    ORDER BY created_version DESC LIMIT 20
"""
_BY_REQUEST = """
    SELECT backfill_id, name, request_fingerprint, created_version, total_partitions FROM backfills
    WHERE created_version IS NOT NULL AND retry_request_id IS NULL AND client_request_id = $request_id
"""
_BY_RETRY = """
    SELECT backfill_id, name, request_fingerprint, created_version, total_partitions FROM backfills
    WHERE created_version IS NOT NULL AND parent_backfill_id = $parent AND retry_request_id = $request_id
"""
_AT_ONCE = 100  # names that are looked up together
_NAMED = "SELECT name FROM backfills WHERE created_version IS NOT NULL AND name IN (SELECT unnest($names))"


def find_backfill(project: Project, backfill: str) -> tuple[str, str]:
    """The id of a backfill and of its root, given its name, its id or how that begins."""
    text = backfill.strip()
    rows = []
    if text:
        parameters = {"name": text, "id": text.upper()}
        rows = project.reader.query(_FIND, parameters, fresh=True, timeout=_PATIENCE).rows
    exact = [row for row in rows if text in (row[0], row[1])]
    if not rows:
        raise BackfillNotFound(f"there is no backfill {text!r:.80}", hint="see `servo backfill list`")
    if len(rows) > 1 and not exact:
        raise BackfillNotFound(f"several backfills begin with {text!r:.80}", hint="give more of the id")
    backfill_id, _, root = (exact or rows)[0]
    return backfill_id, root


def created_before(project: Project, request_id: str, fingerprint: str) -> Backfilled | None:
    """The backfill that was created under this request id, if it was for the same."""
    if project.unbegun:
        return None
    row = _first_use(project, _BY_REQUEST, {"request_id": request_id}, fingerprint)
    if row is None:
        return None
    backfill_id, name, event_id, _ = row
    tree = [job for job in backfills_of(project, [backfill_id]).tree(backfill_id) if not job.is_retry]
    return Backfilled(
        backfill_id=backfill_id,
        name=name,
        event_id=event_id,
        total_partitions=sum(job.fact.total_partitions for job in tree),
        jobs={job.fact.asset_selection[0]: job.id for job in tree if job.id != backfill_id},
        duplicate=True,
    )


def retried_before(project: Project, parent: str, request_id: str, fingerprint: str) -> Backfilled | None:
    """The retry of a backfill that was asked for under this request id."""
    row = _first_use(project, _BY_RETRY, {"parent": parent, "request_id": request_id}, fingerprint)
    if row is None:
        return None
    backfill_id, name, event_id, total = row
    return Backfilled(
        backfill_id=backfill_id, name=name, event_id=event_id, total_partitions=int(total), duplicate=True
    )


def _first_use(
    project: Project, sql: str, parameters: dict[str, str], fingerprint: str
) -> tuple[str, str, str, int] | None:
    rows = project.reader.query(sql, parameters, fresh=True, timeout=_PATIENCE).rows
    if not rows:
        return None
    backfill_id, name, used_for, event_id, total = rows[0]
    if used_for != fingerprint:
        raise IdempotencyMismatch(
            f"the request id {parameters['request_id']!r:.80} was used for another backfill, {name}",
            idempotency_key=parameters["request_id"],
            hint="give this one another id",
        )
    return backfill_id, name, event_id, total


def require_name(project: Project, name: str | None) -> None:
    """Refuse what cannot name a backfill, and what names one already."""
    if name is None:
        return
    if not 1 <= len(name) <= 100 or not set(name) <= set(_NAME) or not name[0].isalpha():
        hint = "use lower-case letters, digits, -, _ and dots, a letter first"
        raise InvalidName(f"{name!r:.100} cannot name a backfill", hint=hint)
    require_free(project, [name])


def require_free(project: Project, names: Iterable[str]) -> None:
    """Refuse names that a backfill has already, be it one that was asked for or a job of its tree."""
    if found := _names_of(project, list(names)):
        raise taken(min(found))


def taken(name: str) -> Conflict:
    return Conflict(f"there is a backfill {name} already", hint="choose another name, or none")


def free_name(project: Project, name: str) -> str:
    """This name, or the first with a number behind it that no backfill has."""
    for first in count(1, _AT_ONCE):
        names = [name if number == 1 else f"{name}-{number}" for number in range(first, first + _AT_ONCE)]
        found = _names_of(project, names)
        if left := [one for one in names if one not in found]:
            return left[0]
    raise AssertionError


def _names_of(project: Project, names: list[str]) -> set[str]:
    if project.unbegun:
        return set()
    rows = project.reader.query(_NAMED, {"names": names}, fresh=True, timeout=_PATIENCE).rows
    return set(chain.from_iterable(rows))
