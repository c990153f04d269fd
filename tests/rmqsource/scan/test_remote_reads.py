# SPDX-License-Identifier: Apache-2.0
"""Plans and tasks on a remote store: number of requests, bytes, and failures."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from bench.make_store import make_store
from bench.store_content import key_of, topic_of
from rmqsource.errors import DamagedStoreError, DataLossError
from store_core.errors import StoreReadError
from store_core.files import remote_requests
from store_core.log.log_scan import LogSlice
from tests.golden_store import golden, tree_state
from tests.rmqsource.reading import plan, read_rows
from tests.store_core.remote import SHOWN_URI, ObjectStore, serve_objects

BUSY = "AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate"
MESSAGES = 30_000


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    made = []
    monkeypatch.setattr(remote_requests, "_pause", made.append)
    return made


@pytest.fixture
def objects():
    return ObjectStore()


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "store"
    shutil.copytree(golden("classic-5x").root, path)
    return path


@pytest.fixture
def uri(root, objects, monkeypatch):
    return serve_objects(monkeypatch, objects, str(root))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Return a store with several index files, whose log ends far before its segment does."""
    root = tmp_path_factory.mktemp("large") / "store"
    make_store(
        root,
        messages=MESSAGES,
        body_bytes=500,
        segment_bytes=32 << 20,
        units_per_queue_file=5000,
        max_hash_slot_num=2000,
        max_index_num=8000,
    )
    return root


@pytest.fixture
def large_uri(large, objects, monkeypatch):
    return serve_objects(monkeypatch, objects, str(large))


def without_store(rows):
    return [{name: value for name, value in row.items() if name != "store"} for row in rows]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"topic": "TopicTest", "access": "consumequeue"},
        {"access": "commitlog"},
        {"mode": "PERMISSIVE"},
        {"table": "keys"},
        {"table": "queues"},
        {"table": "index"},
        {"table": "topics"},
        {"table": "segments"},
    ],
)
def test_a_remote_store_gives_the_rows_of_a_local_one(uri, root, options):
    before = tree_state(root)
    if options.get("table", "messages") in {"messages", "keys"}:
        local, remote = read_rows(root, **options), read_rows(uri, **options)
        assert without_store(remote) == without_store(local)
        assert len(remote) > 0
        assert {row["store"] for row in remote} == {SHOWN_URI}
    else:
        assert plan(uri)[0].store == SHOWN_URI
    assert tree_state(root) == before


def test_a_plan_by_key_takes_few_requests_one_after_the_other(large_uri, large, monkeypatch):
    objects = ObjectStore(delay_seconds=0.02)
    serve_objects(monkeypatch, objects, str(large))
    index_files = len(list((large / "index").iterdir()))
    [found] = plan(large_uri, topic=topic_of(7777), keys=key_of(7777))
    assert found.access_path == "index"
    kinds = Counter(request.kind for request in objects.requests)
    assert kinds["list"] + kinds["stat"] <= 8
    assert len(objects.requests) <= 30 + 12 * index_files
    assert objects.longest_chain() <= 25


def test_a_plan_by_topic_asks_its_queues_at_once(large_uri, objects):
    [found] = plan(large_uri, topic="TopicSmall")
    kinds = Counter(request.kind for request in objects.requests)
    assert found.bytes_to_read < found.end_offset
    assert kinds["list"] + kinds["stat"] <= 12
    assert len(objects.requests) <= 500


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"topic": "TopicSmall", "access": "consumequeue"},
        {"topic": "TopicTenth", "access": "consumequeue"},
        {"topic": topic_of(7777), "keys": key_of(7777), "access": "index"},
        {"topic": topic_of(7777), "access": "consumequeue"},
    ],
)
@pytest.mark.parametrize("columns", [("queue_offset",), ("topic", "body", "properties")])
def test_tasks_fetch_what_the_plan_says(large_uri, large, objects, options, columns):
    plans = plan(large_uri, **options)
    objects.requests.clear()
    rows = read_rows(large_uri, columns, plans=plans, **options)
    assert rows == read_rows(large, columns, **options)
    planned = plans[0].bytes_to_read
    assert sum(row is not None for row in rows) > 0
    # The ends of a range to scan are located with a few blocks.
    scanned = sum(isinstance(part, LogSlice) for split in plans[0].splits for part in split.parts)
    bounds = 3 * 65_536 * scanned
    assert objects.bytes_read() <= 1.1 * planned + bounds
    assert {Path(request.path).parent.name for request in objects.requests} == {"commitlog"}


def test_many_pieces_of_a_scan_are_fetched_at_once(large, monkeypatch):
    objects = ObjectStore(delay_seconds=0.02)
    uri = serve_objects(monkeypatch, objects, str(large))
    plans = plan(uri)
    objects.requests.clear()
    assert len(read_rows(uri, ("queue_offset",), plans=plans)) == MESSAGES
    reads = [request for request in objects.requests if request.kind == "read"]
    assert sum(r.length for r in reads) <= 1.1 * plans[0].bytes_to_read
    assert all(request.length <= 4 << 20 for request in reads)


def fails_at_first(objects, error, times=2):
    """Let each request fail so often before it is answered."""
    failed = Counter()

    def before(*request):
        if failed[request] < times:
            failed[request] += 1
            raise error

    objects.before = before


@pytest.mark.parametrize(
    "error", [OSError(BUSY), ConnectionResetError(104, "reset by peer"), TimeoutError("timed out")]
)
def test_a_busy_server_is_asked_again(uri, root, objects, error, pauses):
    fails_at_first(objects, error)
    assert without_store(read_rows(uri)) == without_store(read_rows(root))
    assert len(pauses) > 20


def test_short_answers_are_asked_again(uri, root, objects, pauses):
    shortened = set()

    def shorten(path, start, data):
        if (path, start) in shortened:
            return data
        shortened.add((path, start))
        return data[: len(data) // 2]

    objects.shorten = shorten
    assert without_store(read_rows(uri)) == without_store(read_rows(root))
    assert len(pauses) >= len(shortened) > 3


@pytest.mark.parametrize("kind", ["list", "open", "read"])
def test_a_server_that_never_answers_is_given_up_and_the_object_named(uri, objects, kind, pauses):
    def before(asked, *_):
        if asked == kind:
            raise OSError(f"{BUSY} (AKIAKEY, SEC/RET)")

    objects.before = before
    with pytest.raises(StoreReadError, match=r"SLOW_DOWN.*tried 8 times") as caught:
        read_rows(uri)
    told = str(caught.value)
    assert "/store" in told
    assert "AKIAKEY" not in told
    assert "SEC/RET" not in told
    assert pauses


def test_a_segment_that_was_replaced_since_planning_is_named(uri, root, objects):
    plans = plan(uri)
    segment = max((root / "commitlog").iterdir())
    os.utime(segment, (1, 1))
    with pytest.raises(StoreReadError, match=rf"{segment}.*changed while it was read"):
        read_rows(uri, plans=plans)
    with segment.open("ab") as file:
        file.write(b"more")
    with pytest.raises(StoreReadError, match=rf"{segment}.*changed while it was read"):
        read_rows(uri, plans=plans)
    assert objects.requests


def test_damage_in_a_replaced_segment_is_told_as_what_it_is(uri, root):
    plans = plan(uri)
    segment = min((root / "commitlog").iterdir())
    segment.write_bytes(b"x" * segment.stat().st_size)
    with pytest.raises(StoreReadError, match=rf"{segment}.*changed while it was read"):
        read_rows(uri, plans=plans)
    with pytest.raises((DamagedStoreError, StoreReadError)) as caught:
        read_rows(uri, access="commitlog")
    assert "changed" not in str(caught.value)


@pytest.mark.parametrize("when", ["open", "read"])
def test_a_segment_that_is_deleted_is_named_or_left_out(uri, root, objects, when):
    plans = plan(uri)
    segment = max((root / "commitlog").iterdir())
    counted = Counter()

    def before(kind, path, *_):
        if path == str(segment):
            counted[kind] += 1
            if when in counted and (when == "open" or (kind == "open" and counted["read"])):
                raise FileNotFoundError(2, "No such file or directory", path)
            if kind == when:
                raise OSError("AWS Error NO_SUCH_KEY during GetObject operation")

    objects.before = before
    with pytest.raises(DataLossError, match=f"{segment} was deleted between planning and reading"):
        read_rows(uri, plans=plans)
    counted.clear()
    left = read_rows(uri, plans=plans, failOnDataLoss=False)
    assert 0 <= len(left) < len(read_rows(root))


def test_a_plan_shows_no_secret(uri):
    shown = repr(plan(uri)) + "".join(map(str, read_rows(uri, ("store",))))
    assert SHOWN_URI in shown
    assert "AKIAKEY" not in shown
    assert "RET" not in shown
