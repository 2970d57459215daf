"""The user's code in a worker: loaded as it is now, with the project's folder as the working folder."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from threading import Lock

from servo.assets import Asset
from servo.assets.loading import Definitions
from servo.controllers.dispatch import Claim
from servo.errors import ServoError, TaskError
from servo.partitions.mappings import Custom
from servo.planning.catalog import Catalog
from servo.runtime.settings import Settings

log = logging.getLogger(__name__)

_OTHERS = {"action": "worker.others"}
_AGAIN_SECONDS = 10.0  # between two looks for what was not there: a new file changes none of those that are known


class Code:
    """The project's code as it is now: loaded again when any of its files has changed."""

    def __init__(self, definitions: Callable[[], Definitions]) -> None:
        self._load = definitions
        self._lock = Lock()
        self._read()
        self._looked_at = self._stamps, time.monotonic()
        self._warned: set[tuple[str, str]] = set()

    def _read(self) -> None:
        self._definitions = self._load()
        self._stamps = _stamps(self._definitions)

    def has(self, claim: Claim, known: Catalog) -> bool:
        """Whether the asset is here as it was planned, and what finds its inputs as it is deployed; if not, the task
        is for a worker of another checkout."""
        why = self._missing(claim) or _mapping_problem(claim, known)
        if why is None:
            return True
        if (name := (claim.run_id, claim.task_key)) not in self._warned:
            self._warned.add(name)
            log.warning("%s of %s is left to others: %s", claim.task_key, claim.run_id, why, extra=_OTHERS)
        return False

    def _missing(self, claim: Claim) -> ServoError | None:
        """The problem if the asset is not here as planned, also not in the files as they are now."""
        with self._lock:
            if self._planned(claim) is not None:
                return None
            stamps = _stamps(self._definitions)
            if stamps != self._looked_at[0] or time.monotonic() >= self._looked_at[1] + _AGAIN_SECONDS:
                self._looked_at = stamps, time.monotonic()
                try:
                    self._read()
                except ServoError as problem:
                    log.warning(
                        "The definitions of this folder cannot be loaded: %s", problem, extra={"action": "worker.code"}
                    )
            return None if self._planned(claim) is not None else self._missing_error(claim)

    def asset(self, claim: Claim) -> Asset:
        """The asset as it was planned. What does not load now, but did before, is as it was before."""
        with self._lock:
            problem: ServoError | None = None
            asset = self._planned(claim)
            if asset is None or _stamps(self._definitions) != self._stamps:
                try:
                    self._read()
                except ServoError as failure:
                    problem = failure
                asset = self._planned(claim) or asset  # as planned, if that was here a moment ago
        if asset is not None:
            return asset
        raise problem or self._missing_error(claim)

    def _missing_error(self, claim: Claim) -> TaskError:
        has = self._definitions.assets.get(claim.asset_key)
        what = "does not have it" if has is None else f"has code version {has.spec.code_version}"
        return TaskError(
            f"{claim.asset_key} was planned with code version {claim.code_version}, but this worker {what}",
            hint="run plan and workers from the same checkout, then `servo run retry`",
        )

    def _planned(self, claim: Claim) -> Asset | None:
        asset = self._definitions.assets.get(claim.asset_key)
        if asset is None:
            return None
        # A run may have been planned before an upgrade, by the first formula.
        return asset if claim.code_version in {asset.spec.code_version, asset.spec.first_version} else None


def _mapping_problem(claim: Claim, known: Catalog) -> ServoError | None:
    """The problem with the functions of an asset's mappings, if there is one."""
    spec = known.graph.specs.get(claim.asset_key)
    mappings = [] if spec is None else [one.mapping for one in spec.dependencies]
    try:
        for mapping in mappings:
            if isinstance(mapping, Custom):
                mapping.require_found()
    except ServoError as problem:
        return problem
    return None


def _stamps(definitions: Definitions) -> list[tuple[int, int] | None]:
    def stamp(path: str) -> tuple[int, int] | None:
        try:
            seen = os.stat(path)  # noqa: PTH116 (it is a text already, and there may be hundreds)
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_size

    return [stamp(str(path)) for path in definitions.files]


def settle(settings: Settings) -> None:
    """Have the user's code find its files and modules where the project is, wherever the worker was started.

    Also in the processes in which Spark runs Python: they get the variable, and the folder.
    """
    root = settings.root
    os.chdir(root)
    folders = [str(folder) for folder in (root, root / "src") if folder.is_dir()]
    sys.path += [folder for folder in folders if folder not in sys.path]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *([before] if before else [])])
