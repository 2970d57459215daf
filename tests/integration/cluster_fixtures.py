"""One standalone cluster and one Connect server for all tests that do nothing to them.

A file that says `pytest_plugins = ("tests.integration.cluster_fixtures",)` has them.
All files that use them are run by one worker (tests/support/distribution.py), and each of the two is started once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.spark_clusters import Connect, Standalone, connect_server, standalone


@pytest.fixture(scope="session")
def standalone_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A standalone cluster for all tests: two workers of two cores. Whoever has a session on it has all of them."""
    with standalone(tmp_path_factory.mktemp("standalone"), cores=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def connect_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    """A Connect server for all tests, that does four tasks at once."""
    with connect_server(tmp_path_factory.mktemp("connect"), master="local[4]") as server:
        yield server
