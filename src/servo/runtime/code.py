"""The user's code where a worker runs it: as it is now, and with the project's folder as its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import Lock

from servo.assets import Asset
from servo.assets.loading import Definitions
from servo.controllers.dispatch import Claim
from servo.errors import ServoError, TaskError
from servo.runtime.settings import Settings


class Code:
    """The project's code as it is now: loaded again when any of its files has changed."""

    def __init__(self, definitions: Callable[[], Definitions]) -> None:
        self._load = definitions
        self._lock = Lock()
        self._read()

    def _read(self) -> None:
        self._definitions = self._load()
        self._stamps = _stamps(self._definitions)

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
                asset = self._planned(claim)
            has = self._definitions.assets.get(claim.asset_key)
        if asset is not None:
            return asset
        if problem is not None:
            raise problem
        what = "does not have it" if has is None else f"has code version {has.spec.code_version}"
        raise TaskError(
            f"{claim.asset_key} was planned with code version {claim.code_version}, but this worker {what}",
            hint="run plan and workers from the same checkout, then `servo run retry`",
        )

    def _planned(self, claim: Claim) -> Asset | None:
        asset = self._definitions.assets.get(claim.asset_key)
        return asset if asset is not None and asset.spec.code_version == claim.code_version else None


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
