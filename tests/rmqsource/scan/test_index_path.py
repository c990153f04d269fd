"""Keys through the index: what RocketMQ's index finds, and no row less when files are gone."""

from __future__ import annotations

import functools
import json
import shutil
from collections import defaultdict

import pytest

from rmqsource.errors import SourceOptionError
from rmqsource.scan.planner import indexed_keys
from rmqsource.scan.predicate import ScanPredicate
from store_core.layout.index import INDEX_HEADER
from tests.golden_store import CLUSTER_NAMES, STORE_NAMES, golden
from tests.rmqsource.reading import expected_rows, places, plan, read_places, read_rows
from tests.store_factory import StoreFactory

MOST_ANSWERS = 64
"""RocketMQ's cap (maxMsgsNumBatch)."""
NAMES = [name for name in (*STORE_NAMES, *CLUSTER_NAMES) if name not in {"empty-5x", "torn-5x"}]


@functools.cache
def rows_of(name):
    return expected_rows(golden(name))


def asked_keys(store):
    """Return the keys that RocketMQ was asked for, by topic."""
    keys = defaultdict(set)
    dump = "query_by_key" if store.is_cluster else "index_query"
    for line in store.dump(dump):
        keys[line["topic"]].add(line["key"])
    return keys


def with_keys(rows, topic, keys):
    return sorted(
        places(
            row for row in rows if row["topic"] == topic and not keys.isdisjoint(row["keys"] or ())
        )
    )


def with_unique_keys(rows, topic, keys):
    return sorted(
        places(row for row in rows if row["topic"] == topic and row["unique_key"] in keys)
    )


@pytest.mark.parametrize("name", NAMES)
def test_all_asked_keys_at_once(name):
    store = golden(name)
    for topic, keys in asked_keys(store).items():
        read = {**store.options, "topic": json.dumps([topic])}
        words = with_keys(rows_of(name), topic, keys)
        unique = with_unique_keys(rows_of(name), topic, keys)
        asked = json.dumps(sorted(keys))
        assert read_places(store.root, **read, keys=asked) == words
        assert read_places(store.root, **read, uniqueKeys=asked) == unique


@pytest.mark.parametrize("name", ["classic-5x", "classic-4x", "cluster-5x", "expired-5x"])
def test_single_keys_through_the_forced_index(name):
    store = golden(name)
    for topic, keys in asked_keys(store).items():
        if topic == "NoSuchTopic":
            continue
        for key in sorted(keys)[:: max(len(keys) // 5, 1)]:
            read = {**store.options, "topic": json.dumps([topic]), "access": "index"}
            found = read_places(store.root, **read, keys=json.dumps([key]))
            assert found == with_keys(rows_of(name), topic, {key})


@pytest.mark.parametrize("name", ["classic-5x", "classic-4x"])
def test_rocketmq_finds_the_same_messages(name):
    """Where RocketMQ's own answer is complete: below its cap of 64, all times, no collision."""
    store = golden(name)
    compared = 0
    for line in store.dump("index_query"):
        topic, key = line["topic"], line["key"]
        all_times = line["begin"] <= 0 and line["end"] >= 1 << 62
        if not all_times or len(line["phy_offsets"]) >= min(line["max_num"], MOST_ANSWERS):
            continue
        rows = [row for row in rows_of(name) if row["topic"] == topic]
        ours = {o for o, _ in with_keys(rows, topic, {key}) + with_unique_keys(rows, topic, {key})}
        prepared = set(line["message_offsets"]) - {row["commit_log_offset"] for row in rows}
        if topic != "Collide":
            assert ours == set(line["message_offsets"]) - prepared, line
            compared += 1
        assert ours <= set(line["message_offsets"]), line
    assert compared > 100


def test_the_hot_key_and_its_plan():
    store = golden("classic-5x")
    wanted = with_keys(rows_of("classic-5x"), "TopicTest", {"hot"})
    assert len(wanted) > 400
    read = {**store.options, "topic": "TopicTest", "keys": "hot"}
    assert read_places(store.root, **read) == wanted
    rare = plan(store.root, **{**read, "keys": "order-17"})[0]
    assert rare.access_path == "index"
    assert " for 1 key;" in rare.reason
    assert rare.bytes_to_read < 0.2 * (rare.bytes_to_read + rare.bytes_skipped)
    assert rare.log_bytes_scanned <= rare.bytes_to_read


def test_colliding_keys_are_told_apart():
    store = golden("classic-5x")
    for key in ("Aa", "BB", "AaAa", "BBBB", "AaBB", "BBAa"):
        read = {**store.options, "topic": "Collide", "keys": key, "access": "index"}
        assert read_places(store.root, **read) == with_keys(rows_of("classic-5x"), "Collide", {key})


def index_files(root):
    return sorted((root / "index").iterdir())


def cut_first(files):
    files[0].unlink()


def cut_middle(files):
    files[len(files) // 2].unlink()


def cut_last(files):
    files[-1].unlink()


def cut_all(files):
    for path in files:
        path.unlink()


def cut_directory(files):
    shutil.rmtree(files[0].parent)


def zero_middle(files):
    files[len(files) // 2].write_bytes(bytes(files[0].stat().st_size))


def zero_last(files):
    files[-1].write_bytes(bytes(files[0].stat().st_size))


def truncate_middle(files):
    with files[len(files) // 2].open("r+b") as f:
        f.truncate(1000)


def empty_last(files):
    files[-1].write_bytes(b"")


def garbage_first(files):
    files[0].write_bytes(b"\xa5" * files[0].stat().st_size)


def garbage_entries(files):
    for path in files[::2]:
        data = bytearray(path.read_bytes())
        data[INDEX_HEADER.size + 400 :] = b"\x7f" * (len(data) - INDEX_HEADER.size - 400)
        path.write_bytes(data)


def forward_slots(files):
    for path in files:
        data = bytearray(path.read_bytes())
        data[INDEX_HEADER.size : INDEX_HEADER.size + 400] = b"\x00\x00\xff\xff" * 100
        path.write_bytes(data)


def zero_slots(files):
    """Lose some slots of each file: its entries are there, and no chain leads to them."""
    for path in files:
        with path.open("r+b") as f:
            f.seek(INDEX_HEADER.size + 80)
            f.write(bytes(120))


def looping_chains(files):
    for path in files[1:]:
        data = bytearray(path.read_bytes())
        for entry in range(1, 399):
            at = INDEX_HEADER.size + 400 + entry * 20 + 16
            data[at : at + 4] = entry.to_bytes(4, "big")
        path.write_bytes(data)


DAMAGES = [
    *(cut_first, cut_middle, cut_last, cut_all, cut_directory, zero_middle, zero_last),
    *(truncate_middle, empty_last, garbage_first, garbage_entries, forward_slots, looping_chains),
    zero_slots,
]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    store = golden("classic-5x")
    base = store.copy_to(tmp_path_factory.mktemp("whole"))

    def damage(change):
        shutil.rmtree(base / "index", ignore_errors=True)
        shutil.copytree(store.root / "index", base / "index")
        change(index_files(base))
        return base

    return damage


@pytest.mark.parametrize("change", DAMAGES, ids=lambda change: change.__name__)
def test_no_answer_is_short_where_the_index_is(change, damaged):
    store, root = golden("classic-5x"), damaged(change)
    rows = rows_of("classic-5x")
    for topic, keys in (
        ("TopicTest", {"hot"}),
        ("TopicTest", {"order-17", "order-170", "user-5"}),
        ("Collide", {"BBAa"}),
    ):
        read = {**store.options, "topic": topic, "keys": json.dumps(sorted(keys))}
        assert read_places(root, **read) == with_keys(rows, topic, keys)
    some = {row["unique_key"] for row in rows if row["topic"] == "TopicTest"} - {None}
    some = set(sorted(some)[::40])
    read = {**store.options, "topic": "TopicTest", "uniqueKeys": json.dumps(sorted(some))}
    assert read_places(root, **read) == with_unique_keys(rows, "TopicTest", some)


def test_lag_of_the_index_is_scanned():
    store = golden("crashed-5x")
    tail = rows_of("crashed-5x")[-80:]
    keys = {word for row in tail if row["topic"] == "TopicTest" for word in row["keys"] or ()}
    read = {**store.options, "topic": "TopicTest", "keys": json.dumps(sorted(keys))}
    assert read_places(store.root, **read) == with_keys(rows_of("crashed-5x"), "TopicTest", keys)


def test_batches_are_scanned_as_the_index_does_not_know_their_messages():
    store = golden("batch-5x")
    rows = rows_of("batch-5x")
    keys = {word for row in rows if row["topic"] == "BatchTopic" for word in row["keys"] or ()}
    unique = {row["unique_key"] for row in rows if row["topic"] == "BatchTopic"} - {None}
    assert unique
    for option, asked, wanted in (
        ("keys", keys, with_keys(rows, "BatchTopic", keys)),
        ("uniqueKeys", unique, with_unique_keys(rows, "BatchTopic", unique)),
    ):
        read = {**store.options, "topic": "BatchTopic", option: json.dumps(sorted(asked))}
        assert plan(store.root, **read)[0].access_path == "commitlog"
        assert read_places(store.root, **read) == wanted
    with pytest.raises(SourceOptionError, match="BatchTopic"):
        plan(store.root, topic="BatchTopic", keys="x", access="index", **store.options)


def test_forced_index_says_what_it_needs():
    store = golden("classic-5x")
    with pytest.raises(SourceOptionError, match="a key of a topic"):
        plan(store.root, keys="hot", access="index", **store.options)
    with pytest.raises(SourceOptionError, match="NoSuchTopic is not known"):
        plan(store.root, keys="hot", topic="NoSuchTopic", access="index", **store.options)


def test_unknown_index_sizes_fall_back_to_a_scan():
    store = golden("classic-5x")
    read = {"topic": "Collide", "keys": "Aa"}
    assert read_places(store.root, **read) == with_keys(rows_of("classic-5x"), "Collide", {"Aa"})


def test_records_that_share_a_hash_but_not_the_topic(tmp_path):
    factory = StoreFactory(tmp_path / "store", segment_bytes=1 << 16)
    for number in range(300):
        factory.add(("Aa", "BB")[number % 2], b"x" * 40, properties={"KEYS": f"k{number % 50}"})
    root = factory.write()
    read = {"topic": "Aa", "keys": "k4", "access": "index", "maxHashSlotNum": 8, "maxIndexNum": 64}
    rows = read_rows(root, ("topic", "keys"), **read)
    assert rows == 6 * [{"topic": "Aa", "keys": ["k4"]}]


def test_the_smallest_set_of_keys_is_looked_up():
    few, many = frozenset("a"), frozenset("abc")
    assert indexed_keys(ScanPredicate(keys=many, unique_keys=few)) == few
    assert indexed_keys(ScanPredicate(keys=many)) == many
    assert indexed_keys(ScanPredicate(tags=many)) is None
