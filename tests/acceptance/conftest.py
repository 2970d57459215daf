from __future__ import annotations

import shutil
from dataclasses import replace
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


@pytest.fixture(scope="session")
def compacted_once(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = Folder(tmp_path_factory.mktemp("compacted"))
    folder.record_runs(3)
    folder.ok("ledger", "compact")
    return folder


@pytest.fixture
def compacted(compacted_once: Folder, tmp_path: Path) -> Folder:
    """The same, with projections that are up to date."""
    shutil.copytree(compacted_once.path, tmp_path, dirs_exist_ok=True)
    return replace(compacted_once, path=tmp_path, variables={})
