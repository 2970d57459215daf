from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.support import Folder


@pytest.fixture
def empty(tmp_path: Path) -> Folder:
    """A project in which nothing was recorded yet."""
    return Folder(tmp_path)


@pytest.fixture
def folder(empty: Folder) -> Folder:
    """A project with three runs: twelve events, two minutes apart, long ago."""
    empty.record_runs(3)
    return empty
