"""The status of partitions in words: a sentence for each, the reasons, and which code changed since they were made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from servo import canonical, decoders
from servo.answers.partitions import AssetSummary, InputState, Obstacle, PartitionView
from servo.assets.reach import changed_code
from servo.fold.display import Status, is_marked
from servo.fold.partition_rows import EQUAL_CODE, CodeClasses, code_classes
from servo.planning.catalog import Catalog
from servo.status.state import State

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers


_OTHER_CODE = "made by other code than is in the folder, which is not deployed yet"
_MARKED = "it was marked as materialized, and holds no data: what only waits for it may run, what reads it may not"


def partition_sentence(
    view: PartitionView,
    *,
    by_upstream_alone: bool,
    frozen: str | None = None,
    changed: int = 0,
    undeployed: bool = False,
) -> str:
    """The status of a partition in one sentence.

    `frozen`: why and by whom, where it is frozen; `changed`: how many of its inputs are not what it was made from;
    `undeployed`: whether it was made by other code than the folder's, which is not deployed yet.
    """
    found = _state_sentence(view, by_upstream_alone=by_upstream_alone, frozen=frozen, changed=changed)
    return f"{found}; it was {_OTHER_CODE}" if undeployed else found


def _state_sentence(view: PartitionView, *, by_upstream_alone: bool, frozen: str | None, changed: int) -> str:
    if view.undefined:
        return "a partition of an earlier definition"
    if is_marked(msgspec.structs.asdict(view)):
        failed = view.status == Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED
        tried = "; a later attempt to make it failed" if failed else ""
        return f"{_MARKED}{tried}" + ("" if frozen is None else f". It is frozen{frozen}")
    if frozen is not None:
        return _frozen_sentence(view, frozen, changed)
    match view.status:
        case Status.NEVER_MATERIALIZED:
            return "there is no data" + ("" if view.last_attempt_outcome is None else ", though it was tried")
        case Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED:
            return "there is data, and a later attempt to make it anew failed"
        case Status.STALE:
            return "there is data, which would come out differently today"
    if by_upstream_alone:
        return "there is data; it is what it was made from that is stale"
    return "there is data, and nothing that it was made from has changed"


def _frozen_sentence(view: PartitionView, frozen: str, changed: int) -> str:
    match view.status:
        case Status.NEVER_MATERIALIZED:
            return f"there is no data, and it is frozen{frozen}: nothing makes it until it is thawed"
        case Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED:
            return f"it is frozen{frozen}; there is data, and a later attempt to make it anew failed"
    if changed:
        verb = "has" if changed == 1 else "have"
        return f"it is frozen{frozen}; {changed:,} of its inputs {verb} changed since"
    return f"it is frozen{frozen}; there is data, and nothing that it was made from has changed"


def because(state: State, asset_key: str, code: str, row: Mapping[str, Any], guilty: list[InputState]) -> str:
    """A reason to be stale in words."""
    spec = state.catalog.spec(asset_key)
    match code:
        case "INVALIDATED":
            by, why = row.get("invalidated_by"), row.get("invalidation_reason")
            return f"{by or 'somebody'} declared it stale" + (f": {why}" if why else "")
        case "CODE_CHANGED":
            made_with = row.get("last_materialization_code_version")
            changes = asset_code(state.tables, state.catalog, asset_key).changes([made_with] if made_with else [])
            what = f"code changed: {shortened(changes)}; " if changes else ""
            return f"{what}made by code {made_with}, deployed now is {spec.code_version}"
        case "UPSTREAM_CHANGED":
            unread, removed = (sum(one.state == state for one in guilty) for state in ("unread", "removed"))
            changed = len(guilty) - unread - removed
            parts = [f"{changed:,} of its inputs changed" if changed else ""]
            parts.append(f"{unread:,} came that it has not read" if unread else "")
            parts.append(
                f"{removed:,} that it read {'is' if removed == 1 else 'are'} not given any more" if removed else ""
            )
            return ", ".join(filter(None, parts)) or "an input changed"
        case "FRESHNESS_POLICY":
            return f"it may be {spec.freshness} old, and was made {row.get('last_materialization_at')}"
        case "UPSTREAM_STALE":
            return "something that it was made from is stale itself"
    return code


def hint_for(view: PartitionView, obstacles: Sequence[Obstacle], *, changed: int = 0) -> str | None:
    """The command to make a partition with, given what stands against that; None where no command would, or it is as it
    should be. `changed`: how many of its inputs are not what it was made from."""
    frozen = "frozen" in view.overlays
    as_it_should_be = view.status == Status.MATERIALIZED and not (frozen and changed)
    if view.undefined or as_it_should_be or "running" in view.overlays or "queued" in view.overlays:
        return None
    if "waiting_approval" in view.overlays:
        return "servo checkpoint list"
    codes = {one.code for one in obstacles}
    if codes & {"NOT_ENDED", "NOTHING_TO_READ"}:
        return None
    at = f"@{view.partition}" if view.partition else ""
    upstream = "+" if codes & {"INPUTS_MISSING", "INPUTS_MARKED"} else ""
    thaw = " --unfreeze REASON" if frozen else ""
    return f"servo materialize '{upstream}{view.asset_key}{at}'{thaw}"


def asset_sentence(summary: AssetSummary, fine: int, outdated: int, undeployed: int) -> str:
    """How many partitions are as they should be, so that a plan leaves them alone, and what the others are."""
    said = []
    if outdated:
        said.append(f"{outdated:,} stale")
    if summary.missing:
        said.append(f"{summary.missing:,} missing")
    if summary.attempt_failed:
        said.append(f"{summary.attempt_failed:,} failed at the last attempt")
    if undeployed:
        said.append(f"{undeployed:,} {_OTHER_CODE}")
    good = f"{fine:,} of {summary.expected:,} partitions are as they should be"
    return good if not said else f"{good}; {', '.join(said)}"


# ── which code changed ───────────────────────────────────────────────────────────────────────────────────────────

_VERSIONS = """
    SELECT code_version, reached FROM asset_versions WHERE asset_id = $asset_id ORDER BY deployment_version
"""
_MADE_WITH = """
    SELECT last_materialization_code_version, count(*) FROM partition_status
    WHERE asset_id = $asset_id AND materialization_version IS NOT NULL
      AND last_materialization_code_version IS NOT NULL
    GROUP BY ALL ORDER BY ALL
"""
_FEW = 3  # names in one sentence


class AssetCode:
    """The versions of one asset's code, oldest first, and which of them are equal."""

    def __init__(self, asset_id: str, current: str, reached: dict[str, str], rows: list[tuple[Any, ...]]) -> None:
        self.asset_id = asset_id
        self.current = current
        self._versions = [code for code, _ in rows if code is not None]
        self._reached = {code: _digests(text) for code, text in rows if code is not None and text is not None}
        if reached:
            self._reached[current] = reached

    @property
    def versions(self) -> list[str]:
        """Every version that was ever deployed, each where it was deployed last."""
        known = self._versions
        return [code for place, code in enumerate(known) if code not in known[place + 1 :]]

    def changes(self, made_with: Iterable[str]) -> list[str]:
        """The differences between some versions and the current one, in words: `helpers.clean in helpers.py`."""
        now = self._reached.get(self.current, {})
        found = [one for version in made_with for one in changed_code(self._reached.get(version, {}), now)]
        return list(dict.fromkeys(found))


def asset_code(snapshot: Answers, known: Catalog, asset_key: str) -> AssetCode:
    """The code of an asset, by definitions that may be about to be deployed."""
    spec, asset_id = known.spec(asset_key), known.asset_id(asset_key)
    rows = snapshot.query(_VERSIONS, {"asset_id": asset_id}).rows
    return AssetCode(asset_id, spec.code_version, spec.reached, rows)


def made_with(snapshot: Answers, asset_id: str) -> dict[str, int]:
    """How many of an asset's partitions were made with which version of its code."""
    return dict(snapshot.query(_MADE_WITH, {"asset_id": asset_id}).rows)


def classes_in(snapshot: Answers) -> CodeClasses:
    """The versions of code that are declared equal."""
    return code_classes(snapshot.query(EQUAL_CODE).rows)


def shortened(changes: list[str]) -> str:
    """A few of them, for a sentence."""
    more = len(changes) - _FEW
    return ", ".join(changes[:_FEW]) + (f" and {more} more" if more > 0 else "")


def _digests(text: str) -> dict[str, str]:
    return decoders.convert(canonical.loads(text.encode()), dict[str, str])
