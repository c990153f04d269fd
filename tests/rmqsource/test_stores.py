"""Which stores a read opens, tokens that pin them, and a store that a broker is writing to."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import rmqsource
from rmqsource.errors import SourceOptionError
from rmqsource.stores import make_token, parse_token, store_config
from store_core.errors import StoreNotFoundError
from store_core.state.store_state import StoreState
from store_core.store_snapshot import StoreSnapshot
from tests.golden_store import golden, tree_state
from tests.rmqsource.reading import expected_rows, parsed, plan, read_places, read_rows
from tests.store_factory import small_store

# Holds the lock of a broker and appends the records that it is handed, one a line, as hex.
_BROKER = """
import fcntl, sys
log, lock = open(sys.argv[1], "r+b", buffering=0), open(sys.argv[2], "r+b")
fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("locked", flush=True)
for line in sys.stdin:
    at, data = line.split()
    log.seek(int(at))
    log.write(bytes.fromhex(data))
    print("written", flush=True)
"""


@pytest.fixture
def live_store(tmp_path):
    """Return a store that another process has open, and a function that makes it append one."""
    factory = small_store(tmp_path / "store", 40, segment_bytes=1 << 16)
    root = factory.write(abort=b"123")
    paths = [str(factory.segment_path()), str(root / "lock")]
    with subprocess.Popen(
        [sys.executable, "-c", _BROKER, *paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout.readline() == "locked\n"

        def append(cut=None):
            record = factory.add("Late", b"l" * 50)
            data = bytes(factory.data[record.commit_log_offset :])[:cut]
            broker.stdin.write(f"{record.commit_log_offset} {data.hex()}\n")
            broker.stdin.flush()
            assert broker.stdout.readline() == "written\n"

        yield root, append
        broker.stdin.close()


def test_a_store_in_use_is_read_and_left_alone(live_store):
    root, append = live_store
    with StoreSnapshot.open(str(root)) as snapshot:
        assert snapshot.state is StoreState.LIVE
    before = tree_state(root)
    assert len(read_places(root)) == 40
    assert tree_state(root) == before
    token = rmqsource.snapshot(str(root))
    plans = plan(root)
    for _ in range(5):
        append()
        assert len(read_places(root, snapshot=token)) == 40
    assert len(read_places(root, plans=plans)) == 40
    assert len(read_places(root)) == 45
    by_topic = [read_places(root, topic="Late", access=way) for way in ("auto", "commitlog")]
    assert by_topic[0] == by_topic[1]
    assert len(by_topic[0]) == 5


@pytest.mark.parametrize("cut", [4, 20, 88, 100])
def test_a_record_that_is_half_written_is_the_end(live_store, cut):
    root, append = live_store
    append()
    append(cut)
    assert len(read_places(root)) == 41


def test_several_stores_in_order(tmp_path):
    roots = [golden(name).root for name in ("onefile-5x", "multipath-5x")]
    options = {"storePathCommitLog": golden("multipath-5x").options["storePathCommitLog"]}
    rows = read_rows(roots[1:], ("store",), **options)
    assert {row["store"] for row in rows} == {str(roots[1])}
    names = [small_store(tmp_path / f"s{name}", 7).write() for name in "cab"]
    rows = read_rows(tmp_path / "s?", ("store",))
    assert [row["store"] for row in rows] == [str(p) for p in sorted(names) for _ in range(7)]
    assert len(plan(tmp_path / "s?", maxPartitionBytes=100, maxPartitions=9)) == 3
    splits = [p.splits for p in plan(tmp_path / "s?", maxPartitionBytes=100, maxPartitions=9)]
    assert sum(map(len, splits)) <= 9
    assert len(read_rows(tmp_path / "s?", maxPartitionBytes=100, maxPartitions=9)) == 21


def test_paths_that_are_no_stores(tmp_path):
    for path, message in (
        (tmp_path / "missing", "does not exist"),
        (tmp_path, "no RocketMQ store; found nothing"),
        (tmp_path / "x*", r"x\*"),
    ):
        with pytest.raises(StoreNotFoundError, match=message):
            read_rows(path)
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(StoreNotFoundError, match="is a file"):
        read_rows(file)


def test_tokens(tmp_path):
    root = small_store(tmp_path / "store", 20).write()
    token = make_token(parsed(root))
    assert parse_token(token) == {str(root): StoreSnapshot.open(str(root)).end_offset}
    other = small_store(tmp_path / "other", 2).write()
    with pytest.raises(SourceOptionError, match="does not name store"):
        read_rows(other, snapshot=token)
    beyond = json.dumps({"ends": {str(root): 10**9}})
    with pytest.raises(SourceOptionError, match="make a new token"):
        read_rows(root, snapshot=beyond)
    for bad in ("", "x", "[]", "{}", '{"ends": 3}', '{"ends": {"a": "b"}}', '{"ends": {"a": -1}}'):
        with pytest.raises(SourceOptionError, match="snapshot"):
            parse_token(bad)


def test_a_token_of_an_earlier_end_hides_what_came_later(tmp_path):
    store = golden("classic-5x")
    rows = expected_rows(store)
    end = rows[1000]["commit_log_offset"]
    token = json.dumps({"ends": {str(store.root): end}})
    for more in ({}, {"access": "commitlog"}, {"access": "consumequeue"}):
        found = read_places(store.root, snapshot=token, **store.options, **more)
        assert all(offset < end for offset, _ in found)
        assert more.get("access") == "commitlog" or len(found) == 1000


def test_a_broker_configuration_file():
    store = golden("multipath-5x")
    rows = read_rows(store.root, ("topic",), config=store.config_file)
    assert len(rows) == len(expected_rows(store))
    config = store_config(parsed(store.root, config=store.config_file, maxIndexNum=77))
    assert config.max_index_num == 77, "an option wins over the file"


def test_a_brokers_absolute_directories_follow_the_store(tmp_path):
    store = golden("multipath-5x")
    conf = tmp_path / "broker.conf"
    names = [f"/home/rocketmq/store/{d}" for d in store.config["commitlog_dirs"]]
    conf.write_text(
        f"storePathRootDir=/home/rocketmq/store\nstorePathCommitLog={','.join(names)}\n"
        "mappedFileSizeCommitLog=32768\n"
    )
    assert len(read_rows(store.root, ("topic",), config=conf)) == len(expected_rows(store))
