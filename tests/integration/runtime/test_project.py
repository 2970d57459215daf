"""A project refuses to go on where a part of it was lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from servo.errors import LedgerCorrupt
from servo.ids import ulid_range
from servo.runtime import load_settings, open_workspace
from servo.runtime.maintenance import Maintenance
from tests.support.recording import at, said
from tests.unit.test_fold import request


def test_a_lost_ledger_is_not_begun_anew_beside_its_archive(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {})
    with open_workspace(settings, create=True, clock=lambda: at(0)) as project:
        project.ledger.append([said(request())])
    with open_workspace(settings, clock=lambda: at(60)) as project:
        assert Maintenance(project).archive(before=at(30)).count == 1
    for path in (tmp_path / ".servo").glob("ledger.db*"):
        path.unlink()
    with open_workspace(settings, create=True) as project, pytest.raises(LedgerCorrupt, match="archive knows 1 event"):
        project.ledger.append([said(request())])


def test_ids_minted_for_sets_never_overlap(tmp_path: Path) -> None:
    with open_workspace(load_settings(tmp_path, {}), clock=lambda: at(0)) as project:
        sets = [ulid_range(project.mint(1000), 1000) for _ in range(20)]
    assert len({one for ids in sets for one in ids}) == 20_000
