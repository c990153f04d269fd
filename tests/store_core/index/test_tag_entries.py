from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace

import pytest

from store_core import Message, MessageStore, MessageStoreConfig
from store_core.files.store_directory import StoreDirectory
from store_core.index.tag_entries import opened_by_5_4, with_tag_index
from store_core.log.commit_log import CommitLog
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.golden_store import STORE_NAMES, golden

BY_5_5 = ("batch-551", "crashed-551", "onefile-551")


def config_of(store, root, **settings):
    config = MessageStoreConfig.from_properties(store.config_properties)
    return replace(config, store_path_root_dir=str(root), **settings)


def indexes_tags(config):
    directory = StoreDirectory(config.store_path_root_dir)
    with closing(CommitLog(directory, config)) as log:
        return with_tag_index(config, directory, log).tag_index_enable


def without_5_5_files(store, tmp_path):
    """Return a copy without what brokers of 5.4 and 5.5 make beside the index."""
    root = store.copy_to(tmp_path)
    shutil.rmtree(root / "rocksdbstore")
    path = root / "checkpoint"
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes(8) + data[48:])
    return root


@pytest.mark.parametrize("name", STORE_NAMES)
def test_stores_show_whether_their_tags_are_indexed(name):
    store = golden(name)
    assert indexes_tags(config_of(store, store.root)) == (name in BY_5_5)


@pytest.mark.parametrize("name", BY_5_5)
def test_the_entries_alone_show_it(name, tmp_path):
    store = golden(name)
    root = without_5_5_files(store, tmp_path)
    assert not opened_by_5_4(StoreDirectory(str(root)))
    assert indexes_tags(config_of(store, root))


def test_what_a_newer_broker_makes_shows_it_before_it_has_indexed_a_message(tmp_path):
    store = golden("classic-5x")
    root = store.copy_to(tmp_path)
    config = config_of(store, root)
    assert not indexes_tags(config)
    (root / "rocksdbstore").mkdir()
    assert indexes_tags(config)
    (root / "rocksdbstore").rmdir()
    data = (root / "checkpoint").read_bytes()
    (root / "checkpoint").write_bytes(data[:40] + (7).to_bytes(8, "big") + data[48:])
    assert indexes_tags(config)


def test_a_setting_decides(tmp_path):
    new, old = golden("onefile-551"), golden("onefile-5x")
    assert not indexes_tags(config_of(new, new.root, tag_index_enable=False))
    assert indexes_tags(config_of(old, old.root, tag_index_enable=True))
    assert indexes_tags(config_of(old, old.root, enable_accelerated_recovery=True))


def test_damaged_index_files_show_nothing(tmp_path):
    store = golden("onefile-551")
    root = without_5_5_files(store, tmp_path)
    for path in (root / "index").iterdir():
        path.write_bytes(b"\xff" * path.stat().st_size)
    assert not indexes_tags(config_of(store, root))


@pytest.mark.parametrize("name", BY_5_5)
def test_queries_by_tags_answer_as_rocketmq(name):
    store = golden(name, recovered=name == "crashed-551")
    with StoreSnapshot(store.root, config_of(store, store.root)) as snapshot:
        for line in store.dump("tag_query"):
            query = [line[key] for key in ("topic", "tags", "max_num", "begin", "end")]
            found = snapshot.query_message(*query, index_type="T")
            places = dict.fromkeys(message.commit_log_offset for message in found.messages)
            assert list(places) == line["message_offsets"], line
            newest = (found.index_last_update_timestamp, found.index_last_update_phy_offset)
            last = (line["index_last_update_timestamp"], line["index_last_update_phy_offset"])
            assert newest == last, line


@pytest.mark.parametrize(
    ("name", "setting", "found"),
    [("onefile-551", None, 4), ("onefile-5x", None, 0), ("onefile-5x", True, 1)],
)
def test_messages_put_into_a_store_are_found_by_tags_where_it_has_such_entries(
    name, setting, found, tmp_path
):
    store = golden(name)
    config = config_of(store, store.copy_to(tmp_path), tag_index_enable=setting)
    tags = next(line["tags"] for line in store.dump("messages") if line.get("tags"))
    topic = next(line["topic"] for line in store.dump("messages") if line.get("tags"))
    query = (topic, tags, 64, 0, 2**62)
    with MessageStore(config) as opened:
        opened.put_message(Message(topic, b"new", queue_id=0, tags=tags, keys=["k"]))
        opened.wait_for_dispatch()
        assert len(opened.query_message(*query, index_type="T").messages) == found
        by_key = [message.body for message in opened.find_messages(topic, [f"T#{tags}"])]
        assert by_key == [], "an entry of tags is no key"
    again = replace(config, tag_index_enable=None)
    assert indexes_tags(again) == (found > 0)
