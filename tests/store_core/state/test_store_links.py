from __future__ import annotations

import shutil
from contextlib import nullcontext

import pytest

from store_core.config import MessageStoreConfig
from store_core.errors import StoreWriteError
from store_core.message_store import MessageStore
from store_core.state.store_links import refuse_links_out
from store_core.store_snapshot import StoreSnapshot
from tests.golden_store import tree_state
from tests.store_factory import small_store

CONFIG = {"max_hash_slot_num": 8, "max_index_num": 64, "mapped_file_size_commit_log": 4096}
PLACES = ["commitlog", "consumequeue", "index", "config", "consumequeue/TopicA"]
PLACES += ["consumequeue/TopicA/0"]


def config(root, **more):
    return MessageStoreConfig(store_path_root_dir=str(root), **CONFIG, **more)


@pytest.fixture
def store(tmp_path):
    return small_store(tmp_path / "store", 40).write(abort=b"1")


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_written_through_a_link_out_of_the_store(place, store, tmp_path):
    # As `cp -a` of a store whose administrator moved a directory to another disk.
    shutil.move(store / place, tmp_path / "elsewhere")
    (store / place).symlink_to(tmp_path / "elsewhere")
    before = tree_state(tmp_path)
    with pytest.raises(StoreWriteError, match="is a link out of the store") as told:
        MessageStore(config(store)).load()
    assert told.value.path == str(store / place)
    assert str(tmp_path / "elsewhere") in str(told.value)
    assert tree_state(tmp_path) == before
    with StoreSnapshot.open(str(store), config(store)) as snapshot:
        assert snapshot.end_offset > 0, "reading goes through links"


@pytest.mark.parametrize("place", PLACES)
def test_links_inside_of_the_store_are_no_matter(place, store):
    shutil.move(store / place, store / "moved")
    (store / place).symlink_to(store / "moved")
    refuse_links_out(str(store))


def test_a_root_behind_a_link(store, tmp_path):
    (tmp_path / "link").symlink_to(store)
    refuse_links_out(str(tmp_path / "link"))


def test_the_log_elsewhere_can_be_named(store, tmp_path):
    shutil.move(store / "commitlog", tmp_path / "elsewhere")
    named = config(store, store_path_commit_log=str(tmp_path / "elsewhere"))
    with MessageStore(named) as opened:
        assert opened.max_phy_offset > 0


@pytest.mark.parametrize("name", ["lock", "abort", "checkpoint"])
def test_no_file_outside_is_written(name, store, tmp_path):
    (store / name).unlink(missing_ok=True)
    (tmp_path / "mine").write_bytes(b"mine" * 20)
    (store / name).symlink_to(tmp_path / "mine")
    is_refused = pytest.raises(StoreWriteError, match="is a link to")
    # An abort that is there already is not written, and a link to it is what a clean stop removes.
    with nullcontext() if name == "abort" else is_refused, MessageStore(config(store)):
        pass
    assert (tmp_path / "mine").read_bytes() == b"mine" * 20
