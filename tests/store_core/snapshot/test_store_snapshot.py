# SPDX-License-Identifier: Apache-2.0
"""The snapshot as a whole: it writes nothing, pins its end, and finds single messages."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import store_core
from store_core import (
    GetMessageStatus,
    MessageStoreConfig,
    StoreError,
    StoreNotFoundError,
    StoreSnapshot,
    TagFilter,
)
from tests.examples import examples
from tests.golden_store import RECOVERED_NAMES, golden, tree_state
from tests.store_factory import small_store

ROOT = Path(__file__).parent.parent.parent.parent
SIZES = MessageStoreConfig(max_hash_slot_num=8, max_index_num=64)


def _use_everything(snapshot):
    topics = {*snapshot.queue_paths, *snapshot.batch_queue_paths}
    for topic, queue_id in sorted(topics):
        low = snapshot.get_min_offset_in_queue(topic, queue_id)
        high = snapshot.get_max_offset_in_queue(topic, queue_id)
        time = snapshot.get_earliest_message_time(topic, queue_id)
        for offset in (low - 1, low, (low + high) // 2, high, high + 1):
            snapshot.get_message("g", topic, queue_id, offset, 32)
            snapshot.get_message("g", topic, queue_id, offset, 32, TagFilter("TagA"))
            snapshot.get_message_store_timestamp(topic, queue_id, offset)
        for boundary in ("lower", "upper"):
            snapshot.get_offset_in_queue_by_time(topic, queue_id, time + 1, boundary)
        snapshot.query_message(topic, "hot", 64, 0, 2**63 - 1)
        if snapshot.state is store_core.StoreState.STOPPED:
            snapshot.find_messages(topic, ["hot", "n0"])
    message = snapshot.look_message_by_offset(max(snapshot.min_phy_offset, 0))
    if message is not None:
        assert snapshot.look_message_by_id(message.message_id) == message


@pytest.mark.parametrize("name", ["classic-5x", "classic-4x", "batch-5x", "ext-5x", "empty-5x"])
def test_reading_changes_and_creates_nothing(name):
    _check_untouched(golden(name))


@pytest.mark.parametrize("name", RECOVERED_NAMES)
def test_reading_a_crashed_store_changes_and_creates_nothing(name):
    _check_untouched(golden(name))


def _check_untouched(store):
    before = tree_state(store.root)
    config = MessageStoreConfig.from_properties(store.config_properties)
    with StoreSnapshot(store.root, config) as snapshot:
        _use_everything(snapshot)
        _use_everything(snapshot)  # from memory
    assert tree_state(store.root) == before


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_damage_gives_an_answer_or_an_error_of_the_store(data):
    with tempfile.TemporaryDirectory() as folder:
        root = small_store(Path(folder), 24).write()
        parts = ("commitlog", "consumequeue", "index", "checkpoint")
        files = [
            f for f in sorted(root.rglob("*")) if f.is_file() and _first_part(f, root) in parts
        ]
        path = data.draw(st.sampled_from(files))
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        damage = data.draw(st.binary(min_size=1, max_size=12))
        content[at : at + len(damage)] = damage
        if data.draw(st.booleans()):
            del content[at:]
        path.write_bytes(content)
        with suppress(StoreError), StoreSnapshot(root, SIZES) as snapshot:
            for topic in ("TopicA", "TopicB"):
                for use in (
                    lambda t: snapshot.get_message("g", t, 0, 2, 32),
                    lambda t: snapshot.get_message("g", t, 1, 0, 32, TagFilter("tag1")),
                    lambda t: snapshot.find_messages(t, ["all"]),
                    lambda t: snapshot.query_message(t, "all", 64, 0, 2**62),
                    lambda t: snapshot.get_offset_in_queue_by_time(t, 0, 1_700_000_010_000),
                    lambda t: snapshot.get_earliest_message_time(t, 1),
                ):
                    with suppress(StoreError):
                        use(topic)


def _first_part(path, root):
    return path.relative_to(root).parts[0]


def test_open_takes_a_path_as_the_constructor_does(tmp_path):
    root = small_store(tmp_path).write()
    with StoreSnapshot.open(str(root), SIZES) as opened, StoreSnapshot(root, SIZES) as made:
        assert opened.end_offset == made.end_offset > 0


def test_nothing_behind_the_given_end(tmp_path):
    factory = small_store(tmp_path)
    root = factory.write()
    for cut in (20, 40, 59):
        end = factory.records[cut].commit_log_offset
        kept = factory.records[:cut]
        with StoreSnapshot(root, SIZES, end_offset=end) as snapshot:
            assert snapshot.max_phy_offset == end
            assert snapshot.look_message_by_offset(end) is None
            assert snapshot.look_message_by_offset(kept[-1].commit_log_offset) is not None
            for topic in ("TopicA", "TopicB"):
                of_topic = [r for r in kept if r.topic_bytes == topic.encode()]
                assert len(snapshot.find_messages(topic, ["all"])) == len(of_topic)
                for queue_id in (0, 1):
                    count = sum(r.queue_id == queue_id for r in of_topic)
                    assert snapshot.get_max_offset_in_queue(topic, queue_id) == count
                    result = snapshot.get_message("g", topic, queue_id, count, 1)
                    assert result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE


def test_nothing_behind_the_given_end_of_a_batch_queue():
    store = golden("batch-5x")
    config = MessageStoreConfig.from_properties(store.config_properties)
    with StoreSnapshot(store.root, config) as snapshot:
        units = snapshot.batch_units("BatchTopic", 0)
    for row in (1, 25, len(units) - 1):
        end = int(units["commit_log_offset"][row])
        with StoreSnapshot(store.root, config, end) as snapshot:
            max_offset = snapshot.get_max_offset_in_queue("BatchTopic", 0)
            assert max_offset == int(units["base_queue_offset"][row])


def test_inner_batch_is_looked_up_whole_and_pulled_in_parts():
    store = golden("batch-5x")
    config = MessageStoreConfig.from_properties(store.config_properties)
    with StoreSnapshot(store.root, config) as snapshot:
        pulled = snapshot.get_message("g", "BatchTopic", 0, 0, 4).messages
        assert [message.queue_offset for message in pulled] == [0, 1, 2, 3]
        whole = snapshot.look_message_by_offset(pulled[0].commit_log_offset)
        assert whole.properties["INNER_NUM"] == "4"
        assert pulled[1].body in whole.body
        time = snapshot.get_message_store_timestamp("BatchTopic", 0, 2)
        assert time == pulled[2].store_timestamp


def test_times_of_messages(tmp_path):
    factory = small_store(tmp_path)
    of_queue = [r for r in factory.records if (r.topic_bytes, r.queue_id) == (b"TopicA", 1)]
    with StoreSnapshot(str(factory.write())) as snapshot:
        queue = ("TopicA", 1)
        for record in of_queue:
            time = snapshot.get_message_store_timestamp(*queue, record.queue_offset)
            assert time == record.store_timestamp
        assert snapshot.get_message_store_timestamp(*queue, len(of_queue)) == -1
        assert snapshot.get_message_store_timestamp(*queue, -1) == -1
        assert snapshot.get_earliest_message_time(*queue) == of_queue[0].store_timestamp
        assert snapshot.get_earliest_message_time("Nope", 1) == -1


def test_look_ups_that_find_nothing(tmp_path):
    factory = small_store(tmp_path)
    with StoreSnapshot(str(factory.write())) as snapshot:
        message = snapshot.look_message_by_offset(0)
        for offset in (-1, 1, factory.end_offset, 1 << 62):
            assert snapshot.look_message_by_offset(offset) is None
        assert snapshot.look_message_by_id(message.message_id.lower()) == message
        other_broker = "7F000001" + message.message_id[8:]
        assert snapshot.look_message_by_id(other_broker) is None
        assert snapshot.look_message_by_id(message.message_id[:-16] + "F" * 16) is None
        for malformed in ("", "xyz", message.message_id[1:], "G" * 32):
            with pytest.raises(ValueError, match="a message id has"):
                snapshot.look_message_by_id(malformed)


def test_closed_snapshot_opens_files_again(tmp_path):
    snapshot = StoreSnapshot(str(small_store(tmp_path).write()), SIZES)
    before = snapshot.query_message("TopicA", "k1", 10, 0, 2**62)
    snapshot.close()
    assert snapshot.query_message("TopicA", "k1", 10, 0, 2**62) == before
    snapshot.close()


def test_no_store(tmp_path):
    with pytest.raises(StoreNotFoundError, match="does not exist"):
        StoreSnapshot(str(tmp_path / "absent"))
    assert not (tmp_path / "absent").exists()


def test_import_of_the_package_loads_nothing():
    code = (
        "import sys, store_core; assert 'StoreSnapshot' in dir(store_core);"
        "heavy = {'numpy', 'pyarrow', 'pyspark'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-B", "-c", code], check=True, cwd=ROOT)


def test_every_exported_name_exists():
    for name in store_core.__all__:
        assert getattr(store_core, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Absent'"):
        _ = store_core.Absent
