# SPDX-License-Identifier: Apache-2.0
"""Stores on an S3-compatible server: read, checked, salvaged, explored, streamed as local ones."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

import rmqsource
from bench.make_store import make_store
from bench.s3_server import S3_KEY, S3_SECRET, s3_server, s3_uri, upload
from bench.store_content import key_of, topic_of
from rmqsource.errors import SourceError
from store_core import MessageStore, StoreSnapshot
from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreError, StoreReadError
from store_core.files import remote_requests
from store_core.files.remote_filesystem import open_filesystem
from store_core.files.store_uri import StoreUri
from tests.golden_store import STORE_NAMES, golden, tree_state
from tests.rmqsource.metadata.support import rows_of
from tests.rmqsource.reading import plan, read_rows

pytestmark = pytest.mark.interop

MESSAGES = 20_000
_TABLES = ("topics", "queues", "consume_queue", "index", "consumer_offsets", "checkpoint")
_SECRETS = (S3_KEY, S3_SECRET, S3_SECRET.replace("/", "%2F").replace("+", "%2B"), "Places@")
_BUSY = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>SlowDown</Code>"
    b"<Message>Please reduce your request rate.</Message></Error>"
)
_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "keep-alive"})


class Server(NamedTuple):
    """An S3 server that has all golden stores, and a larger one."""

    address: str
    large: Path

    def uri(self, name: str, **options: Any) -> str:
        return s3_uri(self.address, name, **options)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("s3")
    large = directory / "large"
    sizes = {"segment_bytes": 16 << 20, "units_per_queue_file": 3000}
    index = {"max_hash_slot_num": 2000, "max_index_num": 8000}
    make_store(large, messages=MESSAGES, body_bytes=500, **sizes, **index)
    with s3_server(directory) as address:
        for name in STORE_NAMES:
            put(address, golden(name).root, name)
        put(address, large, "large")
        yield Server(address, large)


def put(address: str, root: Path, name: str) -> None:
    filesystem, target = open_filesystem(StoreUri(s3_uri(address, name)))
    upload(filesystem, root, target)


@pytest.fixture
def few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_requests, "_FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(remote_requests, "_LONGEST_SECONDS", 1)


def alike(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without the columns that say where they were read."""
    return [{k: v for k, v in row.items() if k not in {"store", "path", "file"}} for row in rows]


def no_secret(text: str) -> bool:
    return not any(secret in text for secret in _SECRETS)


@pytest.mark.parametrize("name", STORE_NAMES)
@pytest.mark.parametrize("table", ["messages", "keys"])
def test_messages_are_those_of_the_local_store(server: Server, name: str, table: str) -> None:
    store = golden(name)
    for mode in ("FAILFAST", "PERMISSIVE"):
        options = {"table": table, "mode": mode, **store.options}
        try:
            expected = alike(read_rows(store.root, **options))
        except (StoreError, SourceError) as err:
            with pytest.raises(type(err)):
                read_rows(server.uri(name), **options)
            continue
        found = read_rows(server.uri(name), **options)
        assert without_places(alike(found)) == without_places(expected)
        # Rows of damage have no store.
        assert {row["store"] for row in found} <= {server.uri(name, with_key=False), None}


def without_places(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of damage without the path of the file in their text."""
    return [{**row, "_corrupt_record": _place(row.get("_corrupt_record"))} for row in rows]


def _place(damage: str | None) -> dict[str, Any]:
    told = json.loads(damage or "{}")
    return {name: value for name, value in told.items() if name not in {"file", "path"}}


@pytest.mark.parametrize("name", STORE_NAMES)
def test_metadata_tables_are_those_of_the_local_store(server: Server, name: str) -> None:
    store = golden(name)
    config = MessageStoreConfig.from_properties(store.options)
    here = StoreSnapshot(store.root, config)
    there = StoreSnapshot(server.uri(name), config)
    with here, there:
        assert (there.end_offset, there.state) == (here.end_offset, here.state)
        for table in _TABLES:
            assert alike(rows_of(there, table)) == alike(rows_of(here, table)), table


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"topic": topic_of(777), "keys": key_of(777)}, "index"),
        ({"topic": "TopicSmall", "access": "consumequeue"}, "consumequeue"),
        ({"startingTimestamp": "2023-11-14T22:13:25Z"}, "commitlog"),
        ({"topic": "TopicTest0", "queueId": "1", "access": "consumequeue"}, "consumequeue"),
        ({}, "commitlog"),
    ],
)
def test_tasks_fetch_what_the_plan_says(server: Server, options: Any, path: str) -> None:
    with RequestProxy(server.address) as proxy:
        uri = s3_uri(proxy.address, "large")
        plans = plan(uri, **options)
        planned = Counter(request.kind for request in proxy.requests)
        proxy.requests.clear()
        rows = read_rows(uri, ("topic", "queue_offset", "body"), plans=plans, **options)
        assert plans[0].access_path == path
        assert rows == read_rows(server.large, ("topic", "queue_offset", "body"), **options)
        fetched = sum(request.body_bytes for request in proxy.requests if request.kind == "get")
        parts = sum(len(split.parts) for split in plans[0].splits)
        assert fetched <= 1.1 * plans[0].bytes_to_read + 4 * 65_536 * parts
        assert planned["list"] <= 12
        assert sum(planned.values()) <= 500
        assert {request.kind for request in proxy.requests} <= {"head", "get"}


def test_a_busy_and_broken_network_changes_no_row(server: Server, few_attempts: None) -> None:
    with RequestProxy(server.address) as proxy:
        asked: Counter[tuple[str, str]] = Counter()

        def trouble(kind: str, path: str) -> str:
            asked[kind, path] += 1
            if "commitlog" in path and asked[kind, path] == 1:
                return "busy"
            return "cut" if kind == "get" and asked[kind, path] % 3 == 2 else ""

        proxy.trouble = trouble
        uri = s3_uri(proxy.address, "large")
        options = {"topic": topic_of(777), "keys": key_of(777)}
        assert alike(read_rows(uri, **options)) == alike(read_rows(server.large, **options))
        columns = ("queue_offset", "body")
        assert read_rows(uri, columns) == read_rows(server.large, columns)
        assert [request.status for request in proxy.requests].count(503) >= 2


def test_a_server_that_is_always_busy_is_given_up(server: Server, few_attempts: None) -> None:
    with RequestProxy(server.address) as proxy:
        proxy.trouble = lambda kind, path: "busy" if kind == "get" else ""
        with pytest.raises(
            StoreReadError, match=r"stores/large/.*(SERVICE_UNAVAILABLE|SLOW_DOWN)"
        ) as caught:
            read_rows(s3_uri(proxy.address, "large"))
        assert no_secret(str(caught.value))


def test_a_wrong_key_is_told_at_once_without_the_key(server: Server) -> None:
    uri = server.uri("large").replace("AKIAPLACES", "AKIAOTHER")
    with pytest.raises(StoreError, match="stores/large") as caught:
        read_rows(uri)
    assert "AKIAOTHER" not in str(caught.value)
    assert no_secret(str(caught.value))


def test_changed_and_deleted_objects_are_named(server: Server, tmp_path: Path) -> None:
    root = golden("classic-5x").copy_to(tmp_path)
    put(server.address, root, "changing")
    uri = server.uri("changing")
    options = golden("classic-5x").options
    plans = plan(uri, **options)
    segment = min((root / "commitlog").iterdir())
    filesystem, target = open_filesystem(StoreUri(uri))
    with filesystem.open_output_stream(f"{target}/commitlog/{segment.name}") as stream:
        stream.write(segment.read_bytes() + b"more")
    with pytest.raises(
        StoreReadError, match=rf"stores/changing/commitlog/{segment.name}: .*changed"
    ):
        read_rows(uri, plans=plans, **options)
    filesystem.delete_file(f"{target}/commitlog/{segment.name}")
    with pytest.raises(Exception, match=rf"commitlog/{segment.name}.* was deleted between"):
        read_rows(uri, plans=plans, **options)


def command(
    *arguments: str, cwd: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rmqsource.cli", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def test_commands_take_keys_from_the_environment(server: Server, tmp_path: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": S3_KEY, "AWS_SECRET_ACCESS_KEY": S3_SECRET}
    uri = server.uri("large", with_key=False)
    for arguments in (["info"], ["check"], ["topics"], ["messages"]):
        done = command(*arguments, uri, **keys)
        assert done.returncode == 0, done.stderr
        assert "TopicTest1" in done.stdout or uri in done.stdout
    target = tmp_path / "salvaged"
    done = command("salvage", uri, str(target), **keys)
    assert done.returncode == 0, done.stderr
    columns = ("topic", "queue_id", "queue_offset", "body")
    assert sorted(map(str, read_rows(target, columns))) == sorted(
        map(str, read_rows(server.large, columns))
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["recover", "URI"],
        ["rebuild-index", "URI"],
        ["rebuild-queues", "URI"],
        ["salvage", "URI", "URI"],
        ["copy", "URI", "URI"],
        ["clean-staging", "URI"],
        ["serve", "URI"],
    ],
)
def test_commands_that_write_refuse_a_remote_store(server: Server, arguments: list[str]) -> None:
    done = command(*(part.replace("URI", server.uri("large")) for part in arguments))
    told = done.stderr.strip()
    assert done.returncode == 2, told
    assert "local" in told or "this machine" in told
    assert len(told.splitlines()) <= 3
    assert "Traceback" not in told
    assert no_secret(done.stdout + told)


def test_commands_show_no_key(server: Server, tmp_path: Path) -> None:
    report = ["report", "-o", "page"]
    for arguments in (["info"], ["check"], ["plan"], ["messages"], report, ["groups"]):
        done = command(*arguments, server.uri("large"), cwd=str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert no_secret(done.stdout + done.stderr)
    done = command("messages", server.uri("nothing"))
    assert done.returncode != 0
    assert no_secret(done.stdout + done.stderr)


def test_what_writes_is_refused_in_a_sentence(server: Server, spark: Any) -> None:
    uri = server.uri("large")
    with pytest.raises(StoreError, match="on this machine") as caught:
        MessageStore(MessageStoreConfig(store_path_root_dir=uri)).load()
    assert no_secret(str(caught.value))
    rmqsource.register(spark)
    frame = spark.createDataFrame([("t", b"b")], "topic string, body binary")
    with pytest.raises(Exception, match="can only be written on a local file system") as told:
        frame.write.format("rocketmq-store").mode("append").save(uri)
    assert no_secret(str(told.value))


def test_spark_reads_streams_and_shows_no_key(
    server: Server, spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rmqsource.register(spark)
    uri, local = server.uri("large"), str(server.large)

    def load(path: str) -> Any:
        return spark.read.format("rocketmq-store").load(path)

    columns = ["topic", "queue_id", "queue_offset", "body"]
    there, here = load(uri).select(*columns), load(local).select(*columns)
    assert there.count() == MESSAGES
    assert there.exceptAll(here).count() == 0
    assert {row.store for row in load(uri).select("store").distinct().collect()} == {
        server.uri("large", with_key=False)
    }
    stream = spark.readStream.format("rocketmq-store").load(uri)
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "rows"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert spark.read.parquet(str(tmp_path / "rows")).count() == MESSAGES
    kept = "".join(p.read_text() for p in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))
    assert server.uri("large", with_key=False) in kept.replace("\\u003d", "=").replace(
        "\\u0026", "&"
    )
    load(uri).explain(extended=True)
    told = capfd.readouterr()
    token = rmqsource.snapshot(uri)
    pinned = spark.read.format("rocketmq-store").option("snapshot", token).load(uri)
    assert pinned.count() == MESSAGES
    assert no_secret(kept + token + str(query.lastProgress) + told.out + told.err)


def test_reading_changes_nothing_on_the_server(server: Server) -> None:
    data = server.large.parent / "s3" / "stores" / "large"
    before = tree_state(data)
    read_rows(server.uri("large"))
    assert command("check", server.uri("large")).returncode == 0
    assert tree_state(data) == before


# An HTTP proxy for an S3 server: it counts requests and bytes, and is busy or cut on demand.


class ProxiedRequest(NamedTuple):
    """A request and its answer: ``list``, ``head`` or ``get``, with begin and end (seconds)."""

    kind: str
    path: str
    status: int
    body_bytes: int
    begun: float
    ended: float


class RequestProxy:
    """Forwards to a server, with a thread for each connection.

    Parameters
    ----------
    target
        ``HOST:PORT``.
    delay_seconds
        Delay of each request.

    Attributes
    ----------
    requests
        All requests that were answered.
    trouble
        Called with kind and path before each request. Returns ``busy``, ``cut`` (in the middle of
        the answer), ``reset`` (before it), or nothing.
    """

    def __init__(self, target: str, delay_seconds: float = 0.0) -> None:
        self.target, self.delay_seconds = target, delay_seconds
        self.requests: list[ProxiedRequest] = []
        self.trouble: Callable[[str, str], str] = lambda _kind, _path: ""
        self._server = _ProxyServer(self)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> RequestProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _ProxyServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: RequestProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy

    def handle_error(self, *_: Any) -> None:
        """Log nothing: a client whose connection was cut goes away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        kind = "list" if "list-type" in urlsplit(self.path).query else "get"
        self._forward(kind)

    def do_HEAD(self) -> None:
        self._forward("head")

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def _forward(self, kind: str) -> None:
        assert isinstance(self.server, _ProxyServer)
        proxy, path, begun = self.server.proxy, urlsplit(self.path).path, time.monotonic()
        time.sleep(proxy.delay_seconds)
        trouble = proxy.trouble(kind, path)
        if trouble == "reset":
            self.close_connection = True
            return
        if trouble == "busy":
            status, headers, body = 503, [("Content-Type", "application/xml")], _BUSY
        else:
            status, headers, body = self._ask(proxy.target)
        self._answer(status, headers, body, is_cut=trouble == "cut")
        noted = ProxiedRequest(kind, path, status, len(body), begun, time.monotonic())
        proxy.requests.append(noted)

    def _ask(self, target: str) -> tuple[int, list[tuple[str, str]], bytes]:
        host, _, port = target.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _answer(
        self, status: int, headers: list[tuple[str, str]], body: bytes, *, is_cut: bool
    ) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value if self.command == "HEAD" else length
            elif name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if is_cut else body)
        self.close_connection = self.close_connection or is_cut
