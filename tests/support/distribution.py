"""Which worker of pytest runs which test files, and in which order, when there are several (`--dist loadfile`).

A file is run by one worker, since its tests share what it sets up. All files that compute with Spark in the tests' own
process are run by one worker, which has one JVM for them: each further JVM would take four seconds to start and as much
again to warm up. So are all files that need a Spark cluster, which share one, and all whose commands compute, which
share a warm JVM (tests/support/warm_spark.py). These three take longest and come first, beside each other; then what
starts processes, and at the end the many short files, which fill what time is left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).parents[2]

_CLUSTERS = "from tests.integration.spark_clusters import"
_SESSION = re.compile(
    r"^from servo\.execution\.spark import .*\bsession\b|^def spark\(|execution_support import", re.MULTILINE
)
_COMMANDS = re.compile(r"^from tests\.acceptance\.projects import|servo\(\"materialize\"", re.MULTILINE)
_ORDER = ("clusters", "spark", "commands", "tests/chaos", "tests/simulation", "tests/acceptance")


@cache
def group_of(file: str) -> str:
    """What is run by one worker together with a file: by itself unless it uses Spark."""
    text = (ROOT / file).read_text()
    if _CLUSTERS in text:
        return "clusters"
    if _SESSION.search(text):
        return "spark"
    return "commands" if _COMMANDS.search(text) else file


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests, those of long files first and otherwise as they are."""
    return sorted(items, key=lambda item: _rank(group_of(_file(item.nodeid))))


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _rank(group: str) -> int:
    return next((rank for rank, start in enumerate(_ORDER) if group.startswith(start)), len(_ORDER))


class Distribution(LoadFileScheduling):
    """Hands out groups of files."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(_file(nodeid))
