# SPDX-License-Identifier: Apache-2.0
"""Spark on several machines: executors with Pythons of their own, lost, repeated, or without us."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.golden_store import golden, tree_state
from tests.interop import java_oracle
from tests.interop.spark_cluster import (
    ClusterDriver,
    ClusterError,
    SparkCluster,
    build_wheel,
    connect_client,
    connect_server,
    make_environment,
    submit,
    wait_until,
    zip_sources,
)
from tests.rmqsource.reading import expected_rows

pytestmark = pytest.mark.interop

WORKERS = ("worker-a", "worker-b")
SIZES = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
TOPIC = "TopicTest"
ROWS = 600
ROW_BYTES = 1000
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}
COLUMNS = ["commit_log_offset", "body"]


class Machines:
    """The cluster, the environments, and the driver that uses its cores now."""

    def __init__(self, directory: Path, cluster: SparkCluster, pythons: dict[str, Path]) -> None:
        self.directory, self.cluster, self.pythons = directory, cluster, pythons
        self._driver: ClusterDriver | None = None
        self._settings: dict[str, str] | None = None
        self._drivers = 0

    def driver(self, settings: dict[str, str] | None = None) -> ClusterDriver:
        """Return a driver with these settings; it replaces another one."""
        if self._driver is None or self._settings != settings:
            self.free()
            place = self.new_directory()
            self._driver = ClusterDriver(place, self.pythons["driver"], self.cluster.url, settings)
            self._settings = settings
        return self._driver

    def new_directory(self) -> Path:
        """Return a directory for a driver."""
        self._drivers += 1
        return self.directory / f"driver-{self._drivers}"

    def free(self) -> None:
        """End the driver, and with it its executors."""
        if self._driver is not None:
            self._driver.kill()
        self._driver = None


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    directory = tmp_path_factory.mktemp("spark-cluster")
    wheel = build_wheel(directory / "wheel")
    pythons = {
        name: make_environment(directory / name, None if name == "bare" else wheel)
        for name in ("driver", "bare", *WORKERS)
    }
    with SparkCluster(directory / "nodes", {name: pythons[name] for name in WORKERS}) as cluster:
        made = Machines(directory, cluster, pythons)
        try:
            yield made
        finally:
            made.free()


def gate_in(directory: Path, *, rows: int, meet: int = 0) -> dict[str, Any]:
    """Return a gate that stops the task of partition 1 in the middle."""
    directory.mkdir()
    return {"directory": str(directory), "partition": 1, "rows": rows, "meet": meet}


def lose_the_executor(machines: Machines, gate: dict[str, Any]) -> None:
    """Kill the executor whose task waits at a gate, and its Python."""
    first = Path(gate["directory"], "attempt-0")
    wait_until(first.exists, "no task came to the gate")
    machines.cluster.kill_executor(Path(first.read_text()).name)


def attempts(gate: dict[str, Any]) -> int:
    """Return how many attempts of the task reached the gate."""
    return len(list(Path(gate["directory"]).glob("attempt-?")))


def staged_bytes(root: Path) -> int:
    return sum(file.stat().st_size for file in root.glob("_staging/*/*.records"))


def numbered(rows: int = ROWS) -> Counter[bytes]:
    """Return the bodies that job `write` writes."""
    return Counter(str(number).encode().ljust(ROW_BYTES, b".") for number in range(rows))


def bodies_for_rocketmq(root: Path, tmp_path: Path, *, sizes: dict[str, str]) -> Counter[bytes]:
    """Return the bodies of all messages that RocketMQ finds in a store, with repeats."""
    (root.parent / "config.json").write_text(
        json.dumps({"store": {key: int(size) for key, size in sizes.items()}})
    )
    out = java_oracle.dump(root, tmp_path / "dump")
    lines = (out / "messages.jsonl").read_text("utf-8").splitlines()
    return Counter(_body(json.loads(line)) for line in lines)


def _body(line: dict[str, Any]) -> bytes:
    return base64.b64decode(line.get("body_b64", line["body_raw_b64"]))


def places_and_bodies(rows: list[Any]) -> list[tuple[int, bytes]]:
    return sorted((row[0], base64.b64decode(row[1])) for row in rows)


def test_every_node_reads_with_its_own_python(machines, tmp_path):
    store = golden("classic-5x")
    before = tree_state(store.root)
    driver = machines.driver()
    found = driver.ask("environments", tasks=4)
    assert [Path(python).name for python, _ in found] == list(WORKERS)
    assert all(Path(package).is_relative_to(python) for python, package in found)

    options = {**store.options, "maxPartitionBytes": "64k"}
    columns = ["commit_log_offset", "body"]
    rows = driver.ask("read", path=str(store.root), columns=columns, options=options)
    expected = sorted((r["commit_log_offset"], r["body"]) for r in expected_rows(store))
    assert places_and_bodies(rows) == expected
    assert tree_state(store.root) == before

    damaged = store.copy_to(tmp_path)
    segment = sorted((damaged / "commitlog").iterdir())[1]
    data = bytearray(segment.read_bytes())
    data[1000:3000] = bytes(2000)
    segment.write_bytes(data)
    with pytest.raises(ClusterError, match="DamagedStoreError") as caught:
        driver.ask("read", path=str(damaged), columns=columns, options=options)
    ours = machines.directory / "worker-"  # the source itself ran there, not only Spark
    assert f'File "{ours}' in str(caught.value)
    assert str(segment) in str(caught.value)


def test_relative_paths_are_those_of_the_driver(machines):
    store = golden("cluster-5x")
    driver = machines.driver()
    place = driver.directory
    shutil.copytree(store.root, place / "stores" / "broker-a")
    shutil.copy(store.config_file, place / "broker.conf")
    options = {"config": "broker.conf"}
    for path in ("stores/broker-a", "stores/broker-*"):
        rows = driver.ask("read", path=path, columns=["store"], options=options)
        assert {row[0] for row in rows} == {"stores/broker-a"}
        topics = {**options, "table": "topics"}
        rows = driver.ask("read", path=path, columns=["store", "topic"], options=topics)
        assert ["stores/broker-a", "orders"] in rows
        planned = {**options, "table": "plan", "topic": "orders"}
        rows = driver.ask("read", path=path, columns=["store"], options=planned)
        assert rows == [["stores/broker-a"]]


def test_a_node_that_does_not_see_the_store_says_so(machines):
    store = golden("classic-5x")
    driver = machines.driver()
    shutil.copytree(store.root, driver.directory / "local-store")
    path = "/proc/self/cwd/local-store"  # another directory in each process
    for loss in ("true", "false"):
        options = {**store.options, "failOnDataLoss": loss}
        with pytest.raises(ClusterError, match=r"does not see it\. Every node of a cluster must"):
            driver.ask("read", path=path, columns=["topic"], options=options)
    before = tree_state(driver.directory / "local-store" / "commitlog")
    with pytest.raises(ClusterError, match="tasks and driver must share the store's file system"):
        driver.ask("write", path=path, topic="T", rows=10, partitions=2, options=store.options)
    assert tree_state(driver.directory / "local-store" / "commitlog") == before


def test_an_executor_that_is_lost_in_the_middle_of_a_read(machines, tmp_path):
    store = golden("classic-5x")
    driver, gate = machines.driver(), gate_in(tmp_path / "gate", rows=20)
    options = {**store.options, "maxPartitionBytes": "256k", "batchRows": "20"}
    columns = ["commit_log_offset", "body"]
    asked = driver.begin("read", path=str(store.root), columns=columns, options=options, gate=gate)
    lose_the_executor(machines, gate)
    rows = driver.finish(asked)
    assert attempts(gate) > 1
    expected = sorted((r["commit_log_offset"], r["body"]) for r in expected_rows(store))
    assert places_and_bodies(rows) == expected


def test_an_executor_that_is_lost_in_the_middle_of_a_write(machines, tmp_path):
    root = tmp_path / "store"
    driver, gate = machines.driver(), gate_in(tmp_path / "gate", rows=200)
    asked = driver.begin(
        "write", path=str(root), topic="T", rows=ROWS, partitions=2, options=SIZES, gate=gate
    )
    wait_until(lambda: staged_bytes(root), "nothing was staged")
    lose_the_executor(machines, gate)
    driver.finish(asked)
    assert attempts(gate) > 1
    assert list(root.glob("_staging/*/")) == []
    assert bodies_for_rocketmq(root, tmp_path, sizes=SIZES) == numbered()
    found = java_oracle.check(root)
    assert found["ok"], found


def test_a_stream_from_store_to_store(machines, tmp_path):
    store = golden("classic-5x")
    root, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    driver, gate = machines.driver(), gate_in(tmp_path / "gate", rows=20)
    options = {**store.options, "topic": TOPIC, "batchRows": "20", "maxPartitionBytes": "256k"}
    stream = {
        "path": str(store.root),
        "sink": str(root),
        "checkpoint": str(checkpoint),
        "options": options,
        "sink_options": {**SIZES, "compatibility": "5"},  # some bodies are empty
    }
    asked = driver.begin("mirror", **stream, gate=gate)
    lose_the_executor(machines, gate)
    driver.finish(asked)
    assert attempts(gate) > 1
    for path in (checkpoint / "commits").iterdir():  # died before Spark recorded its success
        path.unlink()
    machines.driver(SPECULATION).ask("mirror", **stream)  # another driver
    expected = Counter(r["body"] for r in expected_rows(store) if r["topic"] == TOPIC)
    assert bodies_for_rocketmq(root, tmp_path, sizes=SIZES) == expected


def test_two_attempts_of_a_task_that_is_slow(machines, tmp_path):
    """Both end at the same time; or one ends the job, and the other wakes up afterwards."""
    driver = machines.driver(SPECULATION)
    root, expected = tmp_path / "store", Counter()
    for number, meet in enumerate((2, 0)):
        gate = gate_in(tmp_path / f"gate-{number}", rows=200, meet=meet)
        job = {"path": str(root), "topic": f"T{number}", "rows": ROWS, "partitions": 2}
        driver.ask("write", **job, options=SIZES, gate=gate)
        assert attempts(gate) == 2
        Path(gate["directory"], "go").touch()
        expected += numbered()
    assert bodies_for_rocketmq(root, tmp_path, sizes=SIZES) == expected

    store = golden("classic-5x")
    gate = gate_in(tmp_path / "gate-read", rows=20, meet=2)
    options = {**store.options, "maxPartitionBytes": "512k", "batchRows": "20"}
    columns = ["commit_log_offset", "body"]
    rows = driver.ask("read", path=str(store.root), columns=columns, options=options, gate=gate)
    assert attempts(gate) == 2
    found = sorted((r["commit_log_offset"], r["body"]) for r in expected_rows(store))
    assert places_and_bodies(rows) == found


def test_py_files_where_no_node_has_the_package(machines, tmp_path):
    store = golden("classic-5x")
    root = tmp_path / "store"
    machines.free()
    read = {"do": "read", "path": str(store.root), "columns": ["commit_log_offset", "body"]}
    options = {**store.options, "maxPartitionBytes": "64k"}
    write = {"do": "write", "path": str(root), "topic": "T", "rows": ROWS, "partitions": 2}
    jobs = [
        {**read, "options": options},
        {"do": "register"},
        {**read, "options": options},
        {**write, "options": SIZES},
        {"do": "environments", "tasks": 2},
    ]
    archive = zip_sources(tmp_path / "rmqsource.zip")
    unknown, _, rows, written, found = submit(
        machines.new_directory(),
        machines.pythons["bare"],
        machines.cluster.url,
        ["--py-files", str(archive)],
        jobs,
    )
    assert "DATA_SOURCE_NOT_FOUND" in unknown["error"]  # that is the purpose of register()
    expected = sorted((r["commit_log_offset"], r["body"]) for r in expected_rows(store))
    assert places_and_bodies(rows["answer"]) == expected
    assert written == {"answer": None}
    assert bodies_for_rocketmq(root, tmp_path, sizes=SIZES) == numbered()
    assert {Path(python).name for python, _ in found["answer"]} == {"bare"}
    assert all("rmqsource.zip/" in package for _, package in found["answer"])


def test_a_driver_that_has_the_package_and_executors_that_have_it_not(machines, tmp_path):
    store = golden("classic-5x")
    archive = zip_sources(tmp_path / "rmqsource.zip")
    bare = machines.pythons["bare"].parent
    settings = {
        "spark.submit.pyFiles": str(archive),
        "spark.executorEnv.PATH": f"{bare}{os.pathsep}{os.environ['PATH']}",
    }
    read = {"path": str(store.root), "columns": ["commit_log_offset", "body"]}
    with pytest.raises(ClusterError, match="No module named 'rmqsource'"):
        machines.driver(settings).ask("read", **read, options=store.options)
    driver = machines.driver({**settings, "spark.executorEnv.PYTHONPATH": archive.name})
    rows = driver.ask("read", **read, options=store.options)
    expected = sorted((r["commit_log_offset"], r["body"]) for r in expected_rows(store))
    assert places_and_bodies(rows) == expected


# Spark Connect with a server in a process and an environment of its own.


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
    archive = shutil.copy(wheel, tmp_path / "rmqsource.zip")  # Spark accepts no .whl
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
