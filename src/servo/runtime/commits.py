"""Which commit a project's folder is at, asked of git where there is one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

__all__ = ["Commit", "commit_of"]

_SECONDS = 5.0  # for each question: a deployment does not wait longer for a repository of any size
_CODE = ("*.py", "*.toml", "*.sql", "*.yaml", "*.yml", "*.json")
# Set inside a hook, where they name the repository that is being committed to.
_ELSEWHERE = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"})


class Commit(NamedTuple):
    """The commit of a working tree, and whether its files are as committed; None for what cannot be told."""

    id: str | None = None
    clean: bool | None = None


def commit_of(root: Path, home: Path) -> Commit:
    """The commit that a project's folder is at. Never raises.

    Files that git does not know make the tree unclean if they may be code, unless git ignores them or they are in
    Servo's own folder.
    """
    commit = _asked(root, "rev-parse", "--verify", "HEAD")
    if not commit:
        return Commit()
    own = [f":(exclude){home.relative_to(root)}"] if home.is_relative_to(root) and home != root else []
    changed = _asked(root, "status", "--porcelain", "--untracked-files=no")
    unknown = _asked(root, "ls-files", "--others", "--exclude-standard", "--", *_CODE, *own)
    if changed is None or unknown is None:
        return Commit(commit)
    return Commit(commit, not changed and not unknown)


def _asked(root: Path, *arguments: str) -> str | None:
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), *arguments],
            env={**environment, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
