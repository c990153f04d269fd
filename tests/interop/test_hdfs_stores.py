# SPDX-License-Identifier: Apache-2.0
"""Stores on HDFS, served by Hadoop's own name node and data node."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqsource
from bench.s3_server import maven_jars, told_port, upload
from rmqsource.errors import SourceError
from store_core import StoreSnapshot
from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import FileVanishedError, StoreError, StoreReadError
from store_core.files.store_directory import StoreDirectory
from store_core.tools.check.store_check import check_store
from store_core.tools.salvage.salvage import SalvageOptions, salvage_store
from tests.golden_store import golden
from tests.rmqsource.metadata.support import rows_of
from tests.rmqsource.reading import plan, read_rows

pytest.importorskip("hdfs_native", reason="needs Python 3.10")
pytestmark = pytest.mark.interop

_SERVER = Path(__file__).parent / "servers" / "hdfs"
# Other stores are read on S3; copying them here takes longer than all tests.
_STORES = ("classic-5x", "crashed-5x", "torn-5x", "batch-5x")
_TABLES = ("topics", "queues", "consume_queue", "index", "consumer_offsets", "checkpoint")


@contextmanager
def hdfs_server(directory: Path) -> Iterator[str]:
    """Run Hadoop's minicluster in one JVM below a directory; yield its name node's address."""
    command = ["java", "-Xmx384m", "-cp", maven_jars(_SERVER), str(_SERVER / "MiniHdfs.java")]
    with (directory / "hdfs.log").open("wb") as said:
        process = subprocess.Popen(
            [*command, str(directory / "hdfs")],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
        )
        with process:
            try:
                yield f"127.0.0.1:{told_port(process)}"
            finally:
                process.kill()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hdfs_server(tmp_path_factory.mktemp("hdfs")) as found:
        for name in _STORES:
            put(found, golden(name).root, name)
        yield found


def put(address: str, root: Path, name: str) -> None:
    directory = StoreDirectory(f"hdfs://{address}/stores/{name}")
    directory.resolve()
    upload(directory._files.filesystem, root, f"/stores/{name}")  # type: ignore[union-attr]


def alike(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    hidden = {"store", "path", "file", "_corrupt_record"}
    return [{name: value for name, value in row.items() if name not in hidden} for row in rows]


@pytest.mark.parametrize("name", _STORES)
def test_a_store_on_hdfs_is_read_as_a_local_one(address: str, name: str) -> None:
    store, uri = golden(name), f"hdfs://{address}/stores/{name}"
    for table in ("messages", "keys"):
        options = {"table": table, "mode": "PERMISSIVE", **store.options}
        try:
            expected = alike(read_rows(store.root, **options))
        except (StoreError, SourceError) as err:
            with pytest.raises(type(err)):
                read_rows(uri, **options)
            continue
        assert alike(read_rows(uri, **options)) == expected
    config = MessageStoreConfig.from_properties(store.options)
    here = StoreSnapshot(store.root, config)
    there = StoreSnapshot(uri, config)
    with here, there:
        assert (there.end_offset, there.state) == (here.end_offset, here.state)
        for table in _TABLES:
            assert alike(rows_of(there, table)) == alike(rows_of(here, table)), table


def test_a_topic_is_read_through_its_queues(address: str) -> None:
    store, uri = golden("classic-5x"), f"hdfs://{address}/stores/classic-5x"
    options = {"topic": "TopicTest", "access": "consumequeue", **store.options}
    [found] = plan(uri, **options)
    assert found.access_path == "consumequeue"
    assert alike(read_rows(uri, **options)) == alike(read_rows(store.root, **options))


def test_what_is_missing_is_named(address: str) -> None:
    directory = StoreDirectory(f"hdfs://{address}/stores/classic-5x")
    with pytest.raises(FileVanishedError, match="nothing"):
        directory.open(directory.resolve("nothing"))
    with pytest.raises(StoreError, match="does not exist"):
        StoreSnapshot(f"hdfs://{address}/stores/none")


def test_a_replaced_segment_is_named(address: str, tmp_path: Path) -> None:
    store = golden("classic-5x")
    root = store.copy_to(tmp_path)
    put(address, root, "changing")
    uri = f"hdfs://{address}/stores/changing"
    plans = plan(uri, **store.options)
    segment = min((root / "commitlog").iterdir())
    (root / "commitlog").rename(tmp_path / "commitlog")
    segment = tmp_path / "commitlog" / segment.name
    segment.write_bytes(segment.read_bytes()[:-1])
    put(address, segment.parent, "changing/commitlog")
    with pytest.raises(StoreReadError, match=rf"{segment.name}.*changed while it was read"):
        read_rows(uri, plans=plans, **store.options)


def test_spark_and_the_tools_read_it(address: str, spark: Any, tmp_path: Path) -> None:
    store, uri = golden("classic-5x"), f"hdfs://{address}/stores/classic-5x"
    rmqsource.register(spark)
    frame = spark.read.format("rocketmq-store").options(**store.options).load(uri)
    assert frame.count() == len(read_rows(store.root, **store.options))
    config = MessageStoreConfig.from_properties(store.options)
    with StoreSnapshot(uri, config) as snapshot:
        found = check_store(snapshot)
    assert (found.counts.lost_bytes, found.counts.records > 0) == (0, True)
    options = SalvageOptions(clock=lambda: 0)
    assert salvage_store(uri, str(tmp_path / "new"), config, options)
    assert len(read_rows(tmp_path / "new", **store.options)) == frame.count()
