"""Where things lie below the storage's root, as texts that cannot lead anywhere else.

    {tenant}/{workspace}/{asset_id}/{partition_id}/{materialization_id}/part-*.parquet
    {tenant}/{workspace}/{asset_id}/_staging/{run_id}.{attempt}.{ulid}/{name}/part-*.parquet

No key, name or value of a user is part of a path: partitions are known by the hash of their key, the rest by ids.

`vacuum` says what of it may go: staging that no attempt works on any more, and materializations that nobody needs.
"""

from __future__ import annotations

import re
from collections.abc import Container
from datetime import datetime, timedelta

import msgspec

from servo.errors import InvalidName
from servo.execution.protocol import Place, Storage, StoredFolder
from servo.ids import is_ulid, ulid_time
from servo.partitions import partition_id

STAGING = "_staging"

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_PARTITION = re.compile(r"part_[0-9a-f]{32}")
_STAGED = re.compile(r"(?P<run>[A-Za-z0-9][A-Za-z0-9_-]{0,127})\.(?P<attempt>[0-9]{1,9})\.(?P<ulid>[0-9A-Z]{26})")


def asset_folder(asset_id: str) -> str:
    """The folder of an asset."""
    return _checked(asset_id, "an asset id")


def materialization_folder(place: Place) -> str:
    """The folder that holds the files of one materialization, and nothing else."""
    if not is_ulid(place.materialization_id):
        raise InvalidName(f"{place.materialization_id!r:.60} is not a materialization id", hint="give a ULID")
    return f"{asset_folder(place.asset_id)}/{partition_id(place.asset_id, place.key)}/{place.materialization_id}"


def staging_folder(asset_id: str, run_id: str, attempt: int, ulid: str) -> str:
    """The folder of one attempt; the ULID makes it its own."""
    return f"{asset_folder(asset_id)}/{STAGING}/{_checked(run_id, 'a run id')}.{int(attempt)}.{ulid}"


def stored_folder(asset: str, folder: str, name: str) -> StoredFolder | None:
    """What the folder `asset/folder/name` holds; None for what Servo did not put there."""
    if not _ID.fullmatch(asset):
        return None
    if folder == STAGING:
        match = _STAGED.fullmatch(name)
        if match is None or not is_ulid(match["ulid"]):
            return None
        return StoredFolder(asset_id=asset, name=name, made_at=ulid_time(match["ulid"]), run_id=match["run"])
    if _PARTITION.fullmatch(folder) and is_ulid(name):
        return StoredFolder(asset_id=asset, partition_id=folder, name=name, made_at=ulid_time(name))
    return None


def is_data_file(name: str) -> bool:
    """Whether Spark takes a file for data; markers and checksums are not."""
    return name.endswith(".parquet") and not name.startswith(("_", "."))


def _checked(text: str, what: str) -> str:
    if _ID.fullmatch(text):
        return text
    raise InvalidName(f"{text!r:.60} is not {what}", hint="letters, digits, - and _, at most 128")


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """Something that vacuum removed, or would."""

    found: StoredFolder
    bytes: int
    reason: str


def vacuum(
    storage: Storage,
    *,
    referenced: Container[str],
    released: Container[str] = (),
    working: Container[str] = (),
    now: datetime,
    grace: timedelta,
    dry_run: bool,
) -> list[Removed]:
    """Remove what is older than `grace` and what nothing speaks for; or, with `dry_run`, only say what that is.

    `referenced`: the materialization ids that any event points to. `released`: those of them that retention lets go,
    whatever their age. `working`: the runs that are not over, whose staging stays however old it is.
    """

    def reason(found: StoredFolder) -> str | None:
        if found.partition_id is not None and found.name in released:
            return "retention lets it go"
        if found.made_at > now - grace:
            return None  # its event may be on its way
        if found.partition_id is None:
            return None if found.run_id in working else f"left behind by {found.run_id}"
        return None if found.name in referenced else "no event points to it"

    swept = storage.remove_condemned(lambda found: reason(found) is not None, dry_run=dry_run)
    return [Removed(found=found, bytes=size, reason=reason(found) or "") for found, size in swept]
