# SPDX-License-Identifier: Apache-2.0
"""The stores that a read opens, tokens that pin them, and a store that a broker is writing to."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import rmqsource
from rmqsource.errors import DataLossError, SourceOptionError
from rmqsource.metadata import read_metadata
from rmqsource.scan.read_columns import plan_columns, plan_text
from rmqsource.scan.store_versions import make_token, open_snapshots, parse_token, store_config
from store_core.errors import StoreNotFoundError
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.state.store_state import StoreState
from tests.golden_store import golden, tree_state
from tests.rmqsource.reading import expected_rows, parsed, plan, read_places, read_rows
from tests.store_factory import small_store

# Takes a broker's lock and appends the records that it is handed, one a line, as hex.
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
    """Return a store that another process has open, and a function that lets it append a record."""
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
    with StoreSnapshot(root) as snapshot:
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
    with StoreSnapshot(root) as snapshot:
        assert parse_token(token) == {str(root): (0, snapshot.end_offset)}
    other = small_store(tmp_path / "other", 2).write()
    with pytest.raises(SourceOptionError, match="does not name store"):
        read_rows(other, snapshot=token)
    beyond = json.dumps({"stores": {str(root): {"begin": 0, "end": 10**9}}})
    with pytest.raises(SourceOptionError, match="create a new token"):
        read_rows(root, snapshot=beyond)
    with pytest.raises(SourceOptionError, match="from an earlier release"):
        parse_token('{"ends": {"/a": 12}}')


_NO_PINS = [
    *(None, 12, "12", [0, 1], {}, {"begin": 0}, {"end": 1}, {"begin": 0, "end": 1, "more": 2}),
    *({"begin": a, "end": b} for a, b in ((True, 2), (0, 1.0), (0, "1"), (-1, 3), (3, 2))),
    *(
        {"begin": a, "end": b}
        for a, b in ((0, 2**63), (0, None), (0, False), ([], 1), (1e300, 1e301))
    ),
]


@pytest.mark.parametrize(
    "bad",
    [
        *("", "x", "[]", "{}", "null", "3", '"stores"', "[" * 10**5, '{"stores": 3}', "\x00"),
        *('{"stores": [], "x": 1}', '{"stores": null}', "NaN", '{"stores": {"/a": {"begin":NaN}}}'),
        *(json.dumps({"stores": {"/a": pin}}) for pin in _NO_PINS),
    ],
)
def test_what_is_no_token_is_refused(bad):
    with pytest.raises(SourceOptionError, match="snapshot"):
        parse_token(bad)


def _expired_since(tmp_path, gone):
    """Return a store, a token of it, its messages, and the token's end, after segments expired."""
    factory = small_store(tmp_path / "store", 90, segment_bytes=2048)
    root = factory.write()
    token = rmqsource.snapshot(str(root))
    segments = sorted((root / "commitlog").iterdir())
    assert len(segments) > 4
    for path in segments[:gone]:
        path.unlink()
    return root, token, factory, 2048 * min(gone, len(segments))


@pytest.mark.parametrize("gone", [1, 3, 99])
@pytest.mark.parametrize("table", ["messages", "keys"])
def test_what_a_token_pins_and_is_gone_is_data_loss(tmp_path, gone, table):
    root, token, factory, begin = _expired_since(tmp_path, gone)
    stop = min(begin, factory.end_offset)
    read = {"snapshot": token, "table": table}
    with pytest.raises(DataLossError, match=f"{root}: bytes 0 to {stop} of the log"):
        plan(root, **read)
    read["failOnDataLoss"] = False
    left = {r.commit_log_offset for r in factory.records if r.commit_log_offset >= begin}
    assert {offset for offset, _ in read_places(root, **read)} == left
    assert {offset for offset, _ in read_places(root, mode="PERMISSIVE", **read)} == left
    (way,) = plan(root, **read)
    assert way.missing_log == (0, stop)
    row = plan_columns([way])["missing_offsets"][0].as_py()
    assert json.loads(row) == [{"commit_log_start": 0, "commit_log_stop": stop}]
    assert f'"commit_log_stop": {stop}' in plan_text([way])


def test_metadata_of_a_pinned_store_tells_data_loss_too(tmp_path):
    root, token, _, _ = _expired_since(tmp_path, 2)
    with pytest.raises(DataLossError):
        list(open_snapshots(parsed(root, snapshot=token, table="queues")))
    (view,) = open_snapshots(parsed(root, snapshot=token, failOnDataLoss=False))
    view.close()


def test_all_that_a_token_pins_is_gone_and_newer_messages_are_there(tmp_path):
    """The new records are later: a token that ends before them includes none of them."""
    factory = small_store(tmp_path / "store", 90, segment_bytes=2048)
    root = factory.write()
    token = json.dumps({"stores": {str(root): {"begin": 0, "end": 2048}}})
    segments = sorted((root / "commitlog").iterdir())
    for path in segments[:2]:
        path.unlink()
    with pytest.raises(DataLossError, match="bytes 0 to 2048"):
        read_places(root, snapshot=token)
    assert read_places(root, snapshot=token, failOnDataLoss=False) == []
    assert read_places(root, snapshot=token, failOnDataLoss=False, topic="TopicA") == []


def test_a_token_of_another_store(tmp_path):
    root = small_store(tmp_path / "store", 90, segment_bytes=2048).write()
    token = json.dumps({"stores": {str(root): {"begin": 2048, "end": 4096}}})
    with pytest.raises(SourceOptionError, match="it is another store"):
        read_places(root, snapshot=token)


def test_a_token_of_an_earlier_end_hides_what_came_later(tmp_path):
    store = golden("classic-5x")
    rows = expected_rows(store)
    end = rows[1000]["commit_log_offset"]
    token = json.dumps({"stores": {str(store.root): {"begin": 0, "end": end}}})
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


def test_a_brokers_directories_of_windows_follow_the_store(tmp_path):
    store = golden("multipath-5x")
    conf = tmp_path / "broker.conf"
    names = [f"D:\\\\rocketmq\\\\store\\\\{d}" for d in store.config["commitlog_dirs"]]
    conf.write_text(
        f"storePathRootDir=D:/rocketmq/store/\nstorePathCommitLog={','.join(names)}\n"
        "mappedFileSizeCommitLog=32768\n"
    )
    assert len(read_rows(store.root, ("topic",), config=conf)) == len(expected_rows(store))
    conf.write_text("storePathRootDir=D:/rocketmq/store\nstorePathCommitLog=E:\\\\log\n")
    with pytest.raises(SourceOptionError, match="storePathCommitLog=E:/log is a Windows path"):
        read_rows(store.root, ("topic",), config=conf)
    given = parsed(store.root, config=conf, storePathCommitLog="commitlog")
    assert store_config(given).store_path_commit_log == "commitlog"


def test_a_value_that_rocketmq_cannot_parse_does_not_stop_a_read(tmp_path, caplog):
    store = golden("classic-5x")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"brokerName=a\nfileReservedTime=48 # hours\n{_sizes(store)}")
    assert len(read_rows(store.root, ("topic",), config=conf)) == len(expected_rows(store))
    assert f"{conf}, line 2: fileReservedTime='48 # hours': " in caplog.text


def _sizes(store) -> str:
    return "".join(f"{key}={value}\n" for key, value in store.config_properties.items())


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json", "subscriptionGroup.json"])
@pytest.mark.parametrize("table", ["messages", "topics", "consumer_offsets", "queues"])
def test_a_settings_file_of_zeros_is_no_worse_than_none(tmp_path, name, table):
    store = golden("cluster-5x")
    root = store.copy_to(tmp_path)
    for each in (name, f"{name}.bak"):
        (root / "config" / each).unlink(missing_ok=True)
    without = rows_of_table(root, table, store)
    for each in (name, f"{name}.bak"):
        (root / "config" / each).write_bytes(b"\0" * 100)
    assert rows_of_table(root, table, store) == without


def rows_of_table(root, table, store) -> int:
    options = parsed(root, config=store.config_file, table=table)
    if table == "messages":
        return len(read_rows(root, ("topic",), config=store.config_file))
    found = 0
    for snapshot in open_snapshots(options):
        with snapshot:
            for batch in read_metadata(table, snapshot, options):
                found += len(next(iter(batch.values())))
    return found


def test_a_brokers_absolute_directories_follow_the_store(tmp_path):
    store = golden("multipath-5x")
    conf = tmp_path / "broker.conf"
    names = [f"/home/rocketmq/store/{d}" for d in store.config["commitlog_dirs"]]
    conf.write_text(
        f"storePathRootDir=/home/rocketmq/store\nstorePathCommitLog={','.join(names)}\n"
        "mappedFileSizeCommitLog=32768\n"
    )
    assert len(read_rows(store.root, ("topic",), config=conf)) == len(expected_rows(store))
