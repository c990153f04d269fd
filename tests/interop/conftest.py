# SPDX-License-Identifier: Apache-2.0
"""Clusters that several tests share, because starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.java_cluster import RELEASES
from tests.interop.live_cluster import LiveCluster


@pytest.fixture(scope="session", params=RELEASES)
def live_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveCluster]:
    """A name server and a broker of each release; each test uses topics and groups of its own.

    A test that stops or kills something uses a cluster of its own.
    """
    directory = tmp_path_factory.mktemp("live-cluster")
    with LiveCluster(directory, request.param) as cluster:
        yield cluster


@pytest.fixture
def live_pair(tmp_path: Path) -> Iterator[LiveCluster]:
    """Two brokers of 5.3.3 for one test: idle ones would use a fifth of a core until the end."""
    directory = tmp_path / "live-pair"
    with LiveCluster(directory, "5.3.3", brokers=("broker-a", "broker-b")) as cluster:
        yield cluster
