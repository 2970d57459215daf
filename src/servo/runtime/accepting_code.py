"""Declaring that an asset's code makes what it made before: a refactoring. An event with actor and reason."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from servo.answers.assets import CodeAccepted
from servo.errors import InvalidInput
from servo.events import Proposal
from servo.events.model import CodeDeclaredEqual
from servo.planning.catalog import Catalog
from servo.runtime.requesting import append_answered
from servo.runtime.wiring import Project
from servo.status.code_changes import AssetCode, asset_code, classes_in, made_with

__all__ = ["accept_code"]

_PATIENCE = 60.0  # seconds for the tail to be folded


def accept_code(
    project: Project, known: Catalog, asset: str, versions: Sequence[str] = (), *, reason: str, actor: str
) -> CodeAccepted:
    """Record that the code of an asset, by deployed definitions, makes what other versions of it made.

    Where none are named, that is the newest of those that partitions were made with: what a person means who has just
    rewritten the code, however often it was deployed meanwhile. Nothing is computed.
    """
    if not reason.strip():
        raise InvalidInput("no reason is given", hint="say why: whoever looks at it later will ask")
    asset_key = known.graph.resolve(asset)
    snapshot = project.reader.snapshot(fresh=True, timeout=_PATIENCE)
    code = asset_code(snapshot, known, asset_key)
    others = made_with(snapshot, code.asset_id)
    equal = classes_in(snapshot).equal_to(code.asset_id, code.current)
    chosen = _named(asset_key, code, versions, others) if versions else _newest(asset_key, code, others, equal)
    fact = CodeDeclaredEqual(
        declaration_id=project.mint(),
        asset_id=code.asset_id,
        asset_key=asset_key,
        code_version=code.current,
        equal_to=chosen,
        reason=reason,
    )
    answer = CodeAccepted(
        declaration_id=fact.declaration_id,
        asset_key=asset_key,
        code_version=code.current,
        equal_to=chosen,
        reason=reason,
        partitions=sum(others.get(one, 0) for one in chosen),
        changes=code.changes(chosen),
    )
    proposal = Proposal(fact=fact, occurred_at=project.clock(), actor=actor)
    (receipt,) = append_answered(project, [proposal], None, answer=answer)
    return msgspec.structs.replace(answer, event_id=receipt.event_id)


def _named(asset_key: str, code: AssetCode, versions: Sequence[str], others: dict[str, int]) -> list[str]:
    had = [*code.versions, *others]
    for version in versions:
        if version not in had:
            raise InvalidInput(
                f"{asset_key} never had the code version {version!r:.40}",
                hint=f"it had {', '.join(list(dict.fromkeys(reversed(had)))[:5])}",
            )
        if version == code.current:
            raise InvalidInput(
                f"{version} is the code version that {asset_key} has now", hint="name one that it had before"
            )
    return list(dict.fromkeys(versions))


def _newest(asset_key: str, code: AssetCode, others: dict[str, int], equal: set[str]) -> list[str]:
    """Of the versions that partitions were made with, the one that was deployed last."""
    deployed = code.versions
    candidates = sorted(
        (version for version in others if version not in equal),
        key=lambda version: (deployed.index(version) if version in deployed else -1, version),
    )
    if not candidates:
        raise InvalidInput(
            f"no partition of {asset_key} was made by other code than that of now, {code.current}",
            hint="there is nothing to declare equal; see `servo partition stale`",
        )
    return candidates[-1:]
