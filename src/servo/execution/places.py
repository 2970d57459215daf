"""Where things lie below the storage's root, as texts that cannot lead anywhere else.

    {tenant}/{workspace}/{asset_id}/{partition_id}/{materialization_id}/part-*.parquet
    {tenant}/{workspace}/{asset_id}/_staging/{run_id}.{attempt}.{ulid}/{name}/part-*.parquet

No key, name or value of a user is part of a path: partitions are known by the hash of their key, the rest by ids.
"""

from __future__ import annotations

import re

from servo.errors import InvalidName
from servo.execution.protocol import Found, Place
from servo.ids import is_ulid, ulid_time
from servo.partitions import partition_id

__all__ = ["STAGING", "asset_folder", "found", "is_data_file", "materialization_folder", "staging_folder"]

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


def found(asset: str, folder: str, name: str) -> Found | None:
    """What the folder `asset/folder/name` holds; None for what Servo did not put there."""
    if not _ID.fullmatch(asset):
        return None
    if folder == STAGING:
        match = _STAGED.fullmatch(name)
        if match is None or not is_ulid(match["ulid"]):
            return None
        return Found(asset_id=asset, name=name, made_at=ulid_time(match["ulid"]), run_id=match["run"])
    if _PARTITION.fullmatch(folder) and is_ulid(name):
        return Found(asset_id=asset, partition_id=folder, name=name, made_at=ulid_time(name))
    return None


def is_data_file(name: str) -> bool:
    """Whether Spark takes a file for data; markers and checksums are not."""
    return name.endswith(".parquet") and not name.startswith(("_", "."))


def _checked(text: str, what: str) -> str:
    if _ID.fullmatch(text):
        return text
    raise InvalidName(f"{text!r:.60} is not {what}", hint="letters, digits, - and _, at most 128")
