"""Spark Connect with a server in a process and an environment of its own."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.golden_store import golden, tree_state
from tests.interop.spark_cluster import (
    ClusterError,
    build_wheel,
    connect_client,
    connect_server,
    make_environment,
)
from tests.interop.test_spark_cluster import (
    ROWS,
    SIZES,
    TOPIC,
    bodies_for_rocketmq,
    numbered,
    places_and_bodies,
)
from tests.rmqsource.reading import expected_rows

pytestmark = pytest.mark.interop

COLUMNS = ["commit_log_offset", "body"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def environments(tmp_path: Path, wheel: Path) -> dict[str, Path]:
    """Return a Python with the package, and one without."""
    return {
        name: make_environment(tmp_path / name, wheel if name == "whole" else None, connect=True)
        for name in ("whole", "bare")
    }


def test_a_client_needs_nothing_where_the_server_has_the_package(environments, tmp_path):
    store = golden("classic-5x")
    before = tree_state(store.root)
    root, mirror = tmp_path / "a" / "store", tmp_path / "b" / "store"
    with ExitStack() as processes:
        server = processes.enter_context(connect_server(tmp_path / "server", environments["whole"]))
        client = processes.enter_context(
            connect_client(tmp_path / "client", environments["bare"], server)
        )
        read = {"path": str(store.root), "columns": COLUMNS}
        rows = client.ask("read", **read, options=store.options)
        expected = sorted((r["commit_log_offset"], r["body"]) for r in expected_rows(store))
        assert places_and_bodies(rows) == expected

        with pytest.raises(ClusterError, match="did you mean 'topic'"):
            client.ask("read", **read, options={"topik": "x"})
        with pytest.raises(ClusterError, match="does not exist; give the store root"):
            client.ask("read", path=str(tmp_path / "none"), columns=COLUMNS, options={})

        write = {"path": str(root), "topic": "T", "rows": ROWS, "partitions": 2}
        client.ask("write", **write, options=SIZES)
        stream: dict[str, Any] = {"path": str(store.root), "sink": str(mirror)}
        stream["sink_options"] = {**SIZES, "compatibility": "5"}  # some bodies are empty
        options = {**store.options, "topic": TOPIC}
        client.ask("mirror", **stream, checkpoint=str(tmp_path / "check"), options=options)
    assert tree_state(store.root) == before
    assert bodies_for_rocketmq(root, tmp_path / "a", sizes=SIZES) == numbered()
    bodies = Counter(r["body"] for r in expected_rows(store) if r["topic"] == TOPIC)
    assert bodies_for_rocketmq(mirror, tmp_path / "b", sizes=SIZES) == bodies


def test_a_client_brings_the_package_to_a_server_without_it(environments, wheel, tmp_path):
    store = golden("classic-5x")
    archive = shutil.copy(wheel, tmp_path / "rmqsource.zip")  # Spark takes no .whl
    read = {"path": str(store.root), "columns": COLUMNS, "options": store.options}
    with ExitStack() as processes:
        server = processes.enter_context(connect_server(tmp_path / "server", environments["bare"]))
        client = processes.enter_context(
            connect_client(tmp_path / "client", environments["whole"], server)
        )
        with pytest.raises(ClusterError, match="DATA_SOURCE_NOT_FOUND"):
            client.ask("read", **read)
        client.ask("register")
        with pytest.raises(ClusterError, match="No module named 'rmqsource'"):
            client.ask("read", **read)
        client.ask("add_files", path=str(archive))
        client.ask("register")
        expected = sorted((r["commit_log_offset"], r["body"]) for r in expected_rows(store))
        assert places_and_bodies(client.ask("read", **read)) == expected
