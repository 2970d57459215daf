"""The catalog of the last deployment in one file, so that commands need not import the user's code to know it.

It holds as long as none of the files changed that the definitions may come from. On any doubt there is no cached
catalog, and the caller loads the project. What it cannot see are definitions that depend on something else, such as the
environment or the time, and deployments from elsewhere: who acts on it asks `deploying.in_force` first.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import msgspec

from servo import decoders
from servo.assets.loading import Definitions
from servo.canonical import sha256_hex
from servo.events.definitions import AssetDefinition
from servo.partitions.mappings import Custom
from servo.planning.catalog import Catalog
from servo.planning.deployed import definition_of, spec_of
from servo.runtime.settings import Settings

__all__ = ["code_stamps", "quick_catalog", "remember", "remembered_keys"]

_FILE = "definitions-cache.json"
_FORMAT = "1"  # what is in it, and how a catalog is made of that
_SUFFIXES = (".py", ".toml", ".yaml", ".yml", ".json", ".sql")
_MOST_FILES = 5_000
_MOST_ENTRIES = 20_000  # looked at, of whatever kind


class _Stamp(msgspec.Struct, frozen=True, array_like=True):
    path: str
    mtime_ns: int
    size: int


class _Cache(msgspec.Struct, frozen=True, kw_only=True):
    made_by: str  # a hash of what else the catalog depends on
    below: list[_Stamp]  # of every file below the project's folder that may matter
    beside: list[_Stamp]  # of modules that lie elsewhere
    assets: list[AssetDefinition]  # in topological order
    deployment_id: str
    number: int
    definitions_hash: str
    position: int
    event_id: str | None


def quick_catalog(settings: Settings) -> Catalog | None:
    """The catalog of the last deployment from this folder, if nothing that it was made from has changed."""
    try:
        data = (settings.home / _FILE).read_bytes()
        cache = decoders.decode(data, _Cache)
        if cache.made_by != _maker(settings) or [_stamp(one.path) for one in cache.beside] != cache.beside:
            return None
        if _below(settings) != cache.below:
            return None
        return Catalog.of(
            [spec_of(asset) for asset in cache.assets],
            {asset.asset_key: asset.asset_id for asset in cache.assets},
            deployment_id=cache.deployment_id,
            number=cache.number,
            definitions_hash=cache.definitions_hash,
            position=cache.position,
            event_id=cache.event_id,
        )
    except Exception:  # noqa: BLE001 (whatever is wrong with a cache, the project itself is right)
        return None


def remembered_keys(settings: Settings) -> list[str]:
    """The keys of the assets of the last deployment from this folder, whatever has changed since."""
    try:
        return [asset.asset_key for asset in decoders.decode((settings.home / _FILE).read_bytes(), _Cache).assets]
    except (OSError, msgspec.MsgspecError):
        return []


def remember(settings: Settings, definitions: Definitions, catalog: Catalog) -> None:
    """Write the cache, or take it away where it could not be trusted. Never fails: it is only for speed."""
    with suppress(OSError):
        target = settings.home / _FILE
        below = _below(settings)
        if below is None or catalog.deployment_id is None or not _is_settled(catalog):
            target.unlink(missing_ok=True)
            return
        inside = {str(settings.root / one.path) for one in below}
        elsewhere = sorted(str(path) for path in definitions.files if str(path) not in inside)
        cache = _Cache(
            made_by=_maker(settings),
            below=below,
            beside=[_stamp(path) for path in elsewhere],
            assets=[definition_of(spec, catalog.asset_ids) for spec in catalog.graph.specs.values()],
            deployment_id=catalog.deployment_id,
            number=catalog.number,
            definitions_hash=catalog.definitions_hash or "",
            position=catalog.position,
            event_id=catalog.event_id,
        )
        data = msgspec.json.encode(cache)
        if target.is_file() and target.read_bytes() == data:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{_FILE}.{os.getpid()}.part")
        part.write_bytes(data)
        part.replace(target)


def code_stamps(settings: Settings) -> list[_Stamp] | None:
    """When the project's code and settings were last written; None if there are too many files to look at."""
    with suppress(OSError):
        if (below := _below(settings)) is not None:
            return [stamp for stamp in below if stamp.path.endswith((".py", ".toml", ".sql"))]
    return None


def _is_settled(catalog: Catalog) -> bool:
    """Whether files say it all: dynamic values come by events, and a custom mapping is code."""
    specs = catalog.graph.specs.values()
    dynamic = any(dimension.kind == "dynamic" for spec in specs for dimension in spec.partitions.dimensions)
    custom = any(isinstance(one.mapping, Custom) for spec in specs for one in spec.dependencies)
    return not dynamic and not custom


def _maker(settings: Settings) -> str:
    # A hash, since the ledger's address may hold a password.
    return sha256_hex(
        [
            _FORMAT,
            sys.version,
            str(settings.root),
            settings.namespace,
            settings.definitions,
            settings.tenant,
            settings.workspace,
            settings.ledger,
        ]
    )


def _stamp(path: str) -> _Stamp:
    seen = os.stat(path)  # noqa: PTH116 (a Path for each of thousands of files takes longer than the look)
    return _Stamp(path, seen.st_mtime_ns, seen.st_size)


def _below(settings: Settings) -> list[_Stamp] | None:
    """The files below the project's folder that may matter, by path; None if they are too many to look at."""
    root = str(settings.root)
    own = {str(settings.home), settings.storage, str(settings.projections), str(settings.archive)}
    found: list[_Stamp] = []
    folders, entries = [root], 0
    while folders:
        folder = folders.pop()
        with os.scandir(folder) as inside:
            for entry in inside:
                entries += 1
                if entries > _MOST_ENTRIES or len(found) > _MOST_FILES:
                    return None
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith((".", "__pycache__")) and entry.path not in own:
                        folders.append(entry.path)
                elif entry.name == "pyvenv.cfg":
                    # An environment: its packages change by being installed, which changes this file or a version.
                    folders = [one for one in folders if not one.startswith(f"{folder}{os.sep}")]
                    found = [one for one in found if not one.path.startswith(f"{folder[len(root) + 1 :]}{os.sep}")]
                    break
                elif entry.name.endswith(_SUFFIXES) and entry.is_file():
                    seen = entry.stat()
                    found.append(_Stamp(entry.path[len(root) + 1 :], seen.st_mtime_ns, seen.st_size))
    return sorted(found, key=lambda one: one.path)
