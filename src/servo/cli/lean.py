"""Who only reads does without pandas, which Arrow loads at its first array where it finds it: that takes longer than
all else that such a command does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["do_without_pandas"]


class _Lean(MetaPathFinder):
    """Finds no pandas for Arrow. Whoever else imports it, such as a project's own code, finds it as ever."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 (wherever it may be)
        target: ModuleType | None = None,  # noqa: ARG002
        /,
    ) -> ModuleSpec | None:
        if fullname == "pandas" and _asked_by().startswith("servo."):
            raise ImportError("nothing here needs it")
        return None


def _asked_by() -> str:
    """The module whose code caused an import. Arrow is compiled, and leaves no trace: then it is who called Arrow."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "") in (__name__, *_MACHINERY):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


_MACHINERY = ("importlib", "importlib._bootstrap", "importlib._bootstrap_external", "_frozen_importlib")


def do_without_pandas() -> None:
    """From here on, in this process. Servo's own code never asks for pandas."""
    if "pandas" not in sys.modules and not any(isinstance(one, _Lean) for one in sys.meta_path):
        sys.meta_path.insert(0, _Lean())
