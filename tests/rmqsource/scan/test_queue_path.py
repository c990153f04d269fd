# SPDX-License-Identifier: Apache-2.0
"""Damaged, lost or stale queues never make an answer incomplete."""

from __future__ import annotations

import functools
import json
import os
import shutil
from pathlib import Path

import pytest

from rmqsource.errors import SourceOptionError
from rmqsource.scan import queue_path
from store_core import Message, MessageStore, MessageStoreConfig
from store_core.layout import CQ_UNIT
from tests.golden_store import golden
from tests.rmqsource.reading import expected_rows, name_queues, places, plan, read_places
from tests.store_factory import StoreFactory

UNIT = CQ_UNIT.size


@functools.cache
def wanted(name, topic, **more):
    return sorted(places(row for row in expected_rows(golden(name)) if row["topic"] == topic))


def queue_files(root, topic, queue_id=0):
    return sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())


def units_of(path):
    data = path.read_bytes()
    return [data[at : at + UNIT] for at in range(0, len(data), UNIT)]


def write_units(path, units):
    path.write_bytes(b"".join(units))


def used(units):
    return sum(any(unit) for unit in units)


def lose_queue(files):
    shutil.rmtree(files[0].parent)


def lose_topic(files):
    shutil.rmtree(files[0].parent.parent)


def lose_all_files(files):
    for path in files:
        path.unlink()


def lose_first_file(files):
    files[0].unlink()


def lose_last_file(files):
    files[-1].unlink()


def lose_middle_file(files):
    files[len(files) // 2].unlink()


def zero_first_file(files):
    files[0].write_bytes(bytes(files[0].stat().st_size))


def zero_last_file(files):
    files[-1].write_bytes(bytes(files[-1].stat().st_size))


def zero_all_files(files):
    for path in files:
        path.write_bytes(bytes(path.stat().st_size))


def zero_first_units(files):
    units = units_of(files[0])
    write_units(files[0], [bytes(UNIT)] * 3 + units[3:])


def zero_middle_units(files):
    units = units_of(files[0])
    write_units(files[0], units[:5] + [bytes(UNIT)] * 2 + units[7:])


def truncate_first_file(files):
    with files[0].open("r+b") as f:
        f.truncate(13 * UNIT + 7)


def truncate_last_file(files):
    with files[-1].open("r+b") as f:
        f.truncate(UNIT)


def empty_last_file(files):
    files[-1].write_bytes(b"")


def shift_first_file(files):
    units = units_of(files[0])
    write_units(files[0], [units[0], *units])


def swap_units(files):
    units = units_of(files[0])
    units[3], units[4] = units[4], units[3]
    write_units(files[0], units)


def negative_size(files):
    units = units_of(files[0])
    units[2] = units[2][:8] + b"\xff\xff\xff\x10" + units[2][12:]
    write_units(files[0], units)


def garbage_file(files):
    files[0].write_bytes(b"\xa5" * files[0].stat().st_size)


def strange_directories(files):
    topic = files[0].parent.parent
    (topic / "not-a-queue").mkdir()
    (topic / "7x" / "00000000000000000000").mkdir(parents=True)
    (files[0].parent / "readme.txt").write_bytes(b"x")


DAMAGES = [
    *(lose_queue, lose_topic, lose_all_files, lose_first_file, lose_last_file, lose_middle_file),
    *(zero_first_file, zero_last_file, zero_all_files, zero_first_units, zero_middle_units),
    *(truncate_first_file, truncate_last_file, empty_last_file, shift_first_file, swap_units),
    *(negative_size, garbage_file, strange_directories),
]


@functools.cache
def many_files():
    """Return a factory whose topic Small has three full queue files and one begun."""
    factory = StoreFactory(Path("/nowhere"), segment_bytes=1 << 14)
    for number in range(900):
        factory.add("Big", b"x" * 100)
        if number % 15 == 0:
            factory.add("Small", b"small", properties={"TAGS": "t"})
    return factory


def small_offsets():
    return [r.commit_log_offset for r in many_files().records if r.topic_bytes == b"Small"]


@pytest.fixture
def small_root(tmp_path):
    factory = many_files()
    factory.root = tmp_path / "store"
    return name_queues(factory.write())


def found(root, **options):
    return [offset for offset, _ in read_places(root, **options)]


def test_whole_queues_are_taken(small_root):
    (way,) = plan(small_root, topic="Small")
    assert way.access_path == "consumequeue"
    assert found(small_root, topic="Small") == small_offsets()


@pytest.mark.parametrize("change", DAMAGES, ids=lambda change: change.__name__)
def test_damaged_queues(change, small_root):
    change(queue_files(small_root, "Small"))
    assert found(small_root, topic="Small") == small_offsets()
    assert found(small_root, topic="Small", tags="t") == small_offsets()
    assert len(found(small_root, topic="Small,Big")) == 960


def test_a_lost_last_file_costs_a_scan_of_the_rest_only(small_root):
    lose_last_file(queue_files(small_root, "Small"))
    (way,) = plan(small_root, topic="Small")
    assert way.access_path == "consumequeue"
    assert 0 < way.log_bytes_scanned < way.end_offset / 2
    assert "not cover" in way.reason


def test_a_lost_queue_is_named(small_root):
    name_queues(small_root, Small=2)
    (way,) = plan(small_root, topic="Small")
    assert (way.access_path, way.reason) == (
        "commitlog",
        "not through the queues: topic Small has no consume queue 1",
    )
    (only,) = plan(small_root, topic="Small", queueId=0)
    assert only.access_path == "consumequeue"


def test_topics_that_topics_json_does_not_name(small_root):
    path = small_root / "config/topics.json"
    table = json.loads(path.read_text())
    del table["topicConfigTable"]["Small"]
    path.write_text(json.dumps(table))
    (way,) = plan(small_root, topic="Small")
    assert "topics.json does not name" in way.reason
    assert found(small_root, topic="Small") == small_offsets()
    assert found(small_root, topic="NoSuch") == []
    assert found(small_root, topic="NoSuch", access="consumequeue") == []


def test_a_store_of_message_store_is_read_through_its_queues(tmp_path):
    """Without a topics.json the directories of its queues show which queues there are."""
    with MessageStore(MessageStoreConfig(store_path_root_dir=str(tmp_path))) as store:
        for number in range(400):
            topic = "few" if number % 100 == 7 else "many"
            message = Message(topic, b"x" * 2000, queue_id=number % 3)
            assert store.put_message(message).is_appended
    (way,) = plan(tmp_path, topic="few")
    assert way.access_path == "consumequeue"
    assert way.log_bytes_scanned < way.end_offset / 3, "what is near the end"
    by_scan = read_places(tmp_path, topic="few", access="commitlog")
    assert read_places(tmp_path, topic="few") == by_scan
    assert len(by_scan) == 4


@pytest.mark.parametrize("change", DAMAGES, ids=lambda change: change.__name__)
def test_damaged_queues_that_nothing_names(change, small_root):
    (small_root / "config/topics.json").unlink()
    change(queue_files(small_root, "Small"))
    assert found(small_root, topic="Small") == small_offsets()
    assert len(found(small_root, topic="Small,Big")) == 960


def test_too_much_to_prove_it_by(small_root, monkeypatch):
    """If nothing names the queues, a queue that cannot be counted is not trusted."""
    monkeypatch.setattr(queue_path, "_MOST_QUEUES", 1)
    (small_root / "config/topics.json").unlink()
    (way,) = plan(small_root, topic="Small")
    assert "it is not known which queues the topics have" in way.reason
    assert found(small_root, topic="Small") == small_offsets()


def test_topics_that_nothing_names(small_root):
    (small_root / "config/topics.json").unlink()
    (way,) = plan(small_root, topic="Small")
    assert way.access_path == "consumequeue"
    assert found(small_root, topic="Small") == small_offsets()
    assert found(small_root, topic="NoSuch") == []
    assert found(small_root, topic="NoSuch", access="consumequeue") == []


@pytest.mark.parametrize("name", ["crashed-5x", "torn-5x"])
def test_what_no_queue_has_yet_is_scanned(name, tmp_path):
    store = golden(name)
    root = name_queues(store.copy_to(tmp_path))
    for mode, names in (("FAILFAST", ["crashed-5x"]), ("DROPMALFORMED", ["crashed-5x", "torn-5x"])):
        if name not in names:
            continue
        whole = read_places(root, mode=mode, **store.options)
        for topic in {row["topic"] for row in expected_rows(store)}:
            read = {**store.options, "mode": mode, "topic": json.dumps([topic])}
            by_scan = read_places(root, access="commitlog", **read)
            assert read_places(root, **read) == by_scan
            assert set(by_scan) <= set(whole)


def test_phantom_units_of_a_cut_log(tmp_path):
    """Units after the cut remain; later records can be where they point (RocketMQ counts them)."""
    factory = StoreFactory(tmp_path / "store", segment_bytes=1 << 14)
    for number in range(30):
        factory.add(("A", "B")[number % 2], b"y" * 90)
    stale = {queue: list(units) for queue, units in factory.queues.items()}
    keep = factory.records[19]
    cut = keep.commit_log_offset + keep.total_size
    del factory.data[cut:], factory.records[20:]
    for units in factory.queues.values():
        del units[10:]
    for number in range(9):
        factory.add("A", b"new" * (20 + number))
    held = {queue: len(units) for queue, units in factory.queues.items()}
    for queue, units in factory.queues.items():
        units.extend(stale[queue][held[queue] :])
    root = name_queues(factory.write())
    for topic in ("A", "B"):
        by_scan = read_places(root, topic=topic, access="commitlog")
        assert len(by_scan) == held[topic, 0]
        assert read_places(root, topic=topic) == by_scan
        assert read_places(root, topic=topic, access="consumequeue") == by_scan


@pytest.mark.parametrize("name", ["torn-5x", "crashed-5x"])
def test_recovered_stores_hide_what_was_cut(name, tmp_path):
    store = golden(name, recovered=True)
    root = name_queues(store.copy_to(tmp_path))
    for topic in {row["topic"] for row in expected_rows(store)}:
        for access in ("auto", "consumequeue", "commitlog"):
            read = {**store.options, "topic": json.dumps([topic]), "access": access}
            assert read_places(root, **read) == wanted(name, topic)


def test_an_expired_front_needs_no_scan(tmp_path):
    store = golden("expired-5x")
    root = name_queues(store.copy_to(tmp_path))
    for topic in {row["topic"] for row in expected_rows(store)}:
        read = {**store.options, "topic": json.dumps([topic])}
        assert read_places(root, **read) == wanted("expired-5x", topic)


def test_tags_by_hash_and_by_name(tmp_path):
    factory = StoreFactory(tmp_path / "store", segment_bytes=1 << 14)
    for number in range(200):
        factory.add("Big", b"x" * 100)
        if number % 10 == 0:
            factory.add("T", properties={"TAGS": ("AaAa", "BBBB", "other")[number // 10 % 3]})
    root = factory.write()
    name_queues(root)
    (few,) = plan(root, topic="T", tags="AaAa")
    (all_of_it,) = plan(root, topic="T")
    assert few.access_path == "consumequeue"
    assert few.bytes_to_read < all_of_it.bytes_to_read
    assert len(found(root, topic="T", tags="AaAa")) == 7
    assert len(found(root, topic="T", tags="AaAa || BBBB")) == 14


def test_a_tags_code_that_is_no_hash_hides_no_message(tmp_path):
    factory = StoreFactory(tmp_path / "store")
    for number in range(40):
        factory.add("T", properties={"TAGS": "AB"[number % 2]})
    root = factory.write()
    name_queues(root)
    unit = 6 * CQ_UNIT.size + CQ_UNIT.at("tags_code")
    with (root / "consumequeue" / "T" / "0" / f"{0:020d}").open("r+b") as file:
        file.seek(unit)
        file.write(b"\x11\x22\x33\x44")
    for access in ("auto", "consumequeue"):
        assert len(found(root, topic="T", tags="A", access=access, mode="FAILFAST")) == 20


def test_delayed_messages_are_not_chosen_by_tag_hash(tmp_path):
    """The tags code of their units is a delivery time."""
    store = golden("cluster-5x")
    rows = [row for row in expected_rows(store) if row["topic"] == "SCHEDULE_TOPIC_XXXX"]
    tags = {row["tags"] for row in rows} - {None}
    assert tags
    for tag in tags:
        asked = sorted(places(row for row in rows if row["tags"] == tag))
        for access in ("auto", "consumequeue"):
            read = {**store.options, "access": access, "topic": "SCHEDULE_TOPIC_XXXX", "tags": tag}
            assert read_places(store.root, **read) == asked


@pytest.mark.parametrize("name", ["ext-5x", "cluster-5x-ext"])
def test_extension_addresses_are_not_taken_for_tag_hashes(name, tmp_path):
    store = golden(name)
    root = store.root if store.is_cluster else name_queues(store.copy_to(tmp_path))
    rows = expected_rows(store)
    plain = {row["tags"] for row in rows} - {None, ""}
    for topic in {row["topic"] for row in rows}:
        for tag in sorted(t for t in plain if t == t.strip() and "|" not in t)[:4]:
            asked = sorted(places(r for r in rows if (r["topic"], r["tags"]) == (topic, tag)))
            read = {**store.options, "topic": json.dumps([topic]), "tags": tag}
            for access in ("auto", "consumequeue"):
                assert read_places(root, access=access, **read) == asked


@pytest.mark.parametrize("lose", ["begin", "all"])
def test_a_queue_that_evidently_lost_units_is_not_read_as_it_is(tmp_path, caplog, lose):
    factory = StoreFactory(tmp_path / "store", units_per_file=4)
    for _ in range(10):
        factory.add("A")
        factory.add("B")
    root = factory.write()
    files = queue_files(root, "A")
    files[0].unlink()
    if lose == "all":
        shutil.rmtree(root / "consumequeue" / "A")
        offsets = {"offsetTable": {"A@g": {"0": 4}}}
        (root / "config/consumerOffset.json").write_text(json.dumps(offsets))
    for topics in ({"topic": "A"}, {}):
        with pytest.raises(SourceOptionError, match=r"consume queue A/0.*use auto"):
            plan(root, **topics, access="consumequeue")
    rows = found(root, topic="A", access="consumequeue", mode="DROPMALFORMED")
    assert len(rows) == (6 if lose == "begin" else 10)  # without any queue the log is scanned
    assert "consume queue A/0" in caplog.text
    assert len(found(root, topic="A")) == 10
    assert len(found(root, topic="B", access="consumequeue")) == 10


@pytest.mark.parametrize("lose", [(2,), (0,), (1, 2)])
def test_lost_queues_that_nothing_names(tmp_path, monkeypatch, lose):
    """No queue has units that point at their records."""
    factory = StoreFactory(tmp_path / "store", segment_bytes=1 << 14)
    for number in range(900):
        factory.add("Big", b"x" * 100)
        if number % 15 == 0:
            factory.add("Small", b"small", queue_id=number // 15 % 3)
    root = factory.write()
    for queue_id in lose:
        shutil.rmtree(root / "consumequeue/Small" / str(queue_id))
    name_queues(root, Small=min(lose))
    small = [r.commit_log_offset for r in factory.records if r.topic_bytes == b"Small"]
    (way,) = plan(root, topic="Small")
    assert way.access_path == "consumequeue"
    assert 0 < way.log_bytes_scanned < way.end_offset / 4
    assert found(root, topic="Small") == small
    for name, most in (("_MOST_UNITS", 100), ("_MOST_QUEUES", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(queue_path, name, most)
            (way,) = plan(root, topic="Small")
            assert "assumes that the topics have no other queues than those found" in way.reason


def far_last_file(files):
    shutil.copy(files[-1], files[-1].with_name(f"{10**15 // files[0].stat().st_size * 100:020d}"))


def sparse_last_file(files):
    os.truncate(files[-1], 200 << 30)


@pytest.mark.parametrize("change", [far_last_file, sparse_last_file])
def test_what_a_file_far_behind_or_of_any_length_leaves_open_is_not_read(change, small_root):
    change(queue_files(small_root, "Small"))
    (way,) = plan(small_root, topic="Small")
    assert way.access_path == "commitlog"
    assert found(small_root, topic="Small") == small_offsets()


@pytest.mark.parametrize("options", [{}, {"queueId": 0}, {"queueId": 10**6}])
def test_a_damaged_number_of_queues_is_not_counted_up_to(options, small_root):
    name_queues(small_root, Small=2**31 - 1)  # a broker reads no more than that
    (way,) = plan(small_root, topic="Small", **options)
    begins = "commitlog" if options.get("queueId") != 0 else "consumequeue"
    assert way.access_path == begins
    if begins == "commitlog":
        missing = options.get("queueId", 1)
        assert way.reason.endswith(f"topic Small has no consume queue {missing}")


@pytest.mark.parametrize("steps", [-119, -1, 1])
def test_a_unit_that_points_into_another_record_hides_none(steps, small_root):
    """It would be read, and dropped as damage; the bytes before it count as covered."""
    (first, *_) = queue_files(small_root, "Small")
    units = units_of(first)
    at = int.from_bytes(units[5][:8], "big") + steps
    write_units(first, [*units[:5], at.to_bytes(8, "big") + units[5][8:], *units[6:]])
    for options in ({"topic": "Small"}, {"topic": "Small", "tags": "t"}):
        for mode in ("DROPMALFORMED", "FAILFAST"):
            assert found(small_root, mode=mode, **options) == small_offsets()
