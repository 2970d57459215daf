"""The code version of an asset by the second formula: of its function and of all the project's code that it reaches.

The version is a hash of digests, one for each function, class and constant. The digests are kept with it, so that a
later version can be told apart by name: "code changed: helpers.clean in helpers.py".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from servo.assets.decorator import Asset, declared_json
from servo.assets.reach import Reach
from servo.assets.spec import Source
from servo.canonical import sha256_hex
from servo.partitions.mappings import Custom

__all__ = ["changed_code", "reached_by", "recorded", "version_of"]

_FORMULA = 2
_VERSION_DIGITS = 12
_DIGEST_DIGITS = 8  # of each name that is recorded: told apart from its own former ones alone
_OWN = "@function"  # the asset's own function, which is the same where it is moved or renamed
_DECLARED = "@asset"  # partitions, inputs and checks as declared
_CHECK = "@check "


def reached_by(asset: Asset, reach: Reach) -> dict[str, str]:
    """The digest of everything that makes an asset's output what it is, by name."""
    spec = asset.spec
    functions: dict[str, Callable[..., Any]] = {_OWN: asset.function}
    functions |= {f"{_CHECK}{one.name}": one.function for one in spec.checks if one.function is not None}
    mappings = [one.mapping for one in spec.dependencies if isinstance(one.mapping, Custom)]
    declared = declared_json(spec.partitions, spec.dependencies, spec.checks, batch=spec.batch)
    return reach.of(functions, [name for one in mappings for name in one.functions]) | {_DECLARED: sha256_hex(declared)}


def version_of(reached: Mapping[str, str]) -> str:
    """The code version that digests make together."""
    return sha256_hex({"v": _FORMULA, "reached": dict(reached)})[:_VERSION_DIGITS]


def recorded(reached: Mapping[str, str], source: Source, root: Path) -> dict[str, str]:
    """The digests in the short form that a deployment keeps, the function's own under its file."""
    own = f"{source.file.removeprefix(f'{root}/')}:{_OWN}"
    return {own if name == _OWN else name: digest[:_DIGEST_DIGITS] for name, digest in reached.items()}


def changed_code(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs between two versions of an asset, in words; nothing where either has no record of what it covers."""
    if not before or not now:
        return []
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    own = {name for name in names if name.endswith(f":{_OWN}")}
    if own and len({digest for name, digest in (*before.items(), *now.items()) if name in own}) == 1:
        names = [name for name in names if name not in own]  # the same in another file
    return list(dict.fromkeys(_words(name, before, now) for name in names))


def _words(name: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    if name == _DECLARED:
        return "its declaration (partitions, inputs or checks)"
    if name.startswith(_CHECK):
        return f"the check {name.removeprefix(_CHECK)}"
    file, _, symbol = name.rpartition(":")
    if symbol == _OWN:
        return f"its function in {file}"
    module = file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    what = module if symbol == "*" else f"{module}.{symbol}"
    change = " is new" if name not in before else " is gone" if name not in now else ""
    return f"{what} in {file}{change}"
