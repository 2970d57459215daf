"""Why a partition or an asset is as it is: the proof tree."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict

import msgspec

from servo.answers.partitions import AssetSummary, PartitionView


class SampleView(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of a batch that was computed alone as well, and how both compared."""

    partition_key: str
    verdict: str
    content_hash: str | None = None
    remark: str | None = None


class MadeInCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call of the function that made a partition, where it was for several or returned rows of others.

    `also_given`: how many partitions of which assets it was given that the mapping does not name for this one.
    """

    partitions: int
    also_given: dict[str, int] = {}
    rows_left_out: int = 0
    left_out_example: str | None = None
    samples: list[SampleView] = []
    sentences: list[str] = []


class InputState(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream partition of a partition: what was read of it, what is current now, and how the two compare.

    The state is same (what was read is current), same_content (another materialization with the same content),
    changed, unread (there, given by the mapping, and not read), missing (given by the mapping, and not there), marked
    (as materialized, so that it holds no data) or removed (read, and not given any more: its value was removed, or the
    mapping is another).
    """

    asset_id: str
    asset_key: str
    partition_key: str
    state: str
    given: bool  # whether the mapping of the definitions in force gives it
    read_materialization_id: str | None = None
    read_content_hash: str | None = None
    read_run_id: str | None = None  # the run that had made what was read
    read_made_at: datetime | None = None
    current_materialization_id: str | None = None
    current_content_hash: str | None = None
    current_run_id: str | None = None
    current_made_at: datetime | None = None
    changed_at: datetime | None = None  # since when it makes the reader stale; None if it does not


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """Why a partition is not computed, or not yet: RUNNING, READY, QUEUED, WAITS_FOR_UPSTREAM, RETRY_WAIT,
    WAITING_APPROVAL, FAILED, SKIPPED, UNCHANGED, CANCELLED, HELD_BACK, NEVER_ASKED_FOR, INPUTS_MISSING,
    INPUTS_MARKED, NOTHING_TO_READ, NOT_ENDED, FROZEN or UNDEFINED.
    """

    code: str
    sentence: str
    run_id: str | None = None
    task_key: str | None = None
    at: datetime | None = None
    until: datetime | None = None
    error: str | None = None
    checkpoint_id: str | None = None
    because_of: list[str] = []  # what it waits for or stumbled over: tasks, or partitions as people type them


class ReasonCount(TypedDict):
    """A reason for which partitions of an asset are stale: how many, which, and since when."""

    code: str
    partitions: int
    since: datetime
    described: str


class AssetWhy(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about all partitions of an asset, condensed."""

    summary: AssetSummary
    sentence: str
    now: datetime
    reasons: list[ReasonCount] = []
    roots: list[dict[str, Any]] = []  # asset_key, code, partitions (how many of ours), root_partitions
    failures: list[dict[str, Any]] = []  # error, partitions (how many of the newest), newest
    missing: list[dict[str, Any]] = []  # why, partitions, described
    undeployed: int = 0  # partitions that code of this folder, which is not deployed yet, would make stale
    hint: str | None = None


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """The current materialization of a partition."""

    materialization_id: str
    made_at: datetime | None = None
    published_at: datetime | None = None
    run_id: str | None = None
    made_by: str | None = None
    code_version: str | None = None
    content_hash: str | None = None
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    call: MadeInCall | None = None
    # Where somebody marked it as materialized, so that there is no data: why. `made_by` says who.
    mark_reason: str | None = None
    # Where it is current because of a rollback: since when, by whom and why.
    rolled_back_at: datetime | None = None
    rolled_back_by: str | None = None
    rollback_reason: str | None = None


class Grounds(msgspec.Struct, frozen=True, kw_only=True):
    """One reason to be stale, with what proves it."""

    code: str
    since: datetime
    sentence: str
    inputs: list[InputState] = []


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """The partition upstream at which staleness began, and why it is stale itself."""

    asset_key: str
    partition_key: str
    partition: str
    code: str


class PartitionWhy(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about one partition."""

    partition: PartitionView
    sentence: str
    now: datetime
    made: Made | None = None
    reasons: list[Grounds] = []
    root: Cause | None = None
    inputs: list[InputState] = []
    not_run: list[Obstacle] = []
    undeployed: bool = False  # made by other code than the folder's, which a plan would deploy
    hint: str | None = None
