# SPDX-License-Identifier: Apache-2.0
"""Queues rebuilt from the logs of the golden stores, against those that RocketMQ wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreFormatError
from store_core.files.store_directory import StoreDirectory
from store_core.layout import CQ_UNIT
from store_core.queue.consume_queue import ConsumeQueue
from store_core.queue.queue_directories import CONSUME_QUEUE_EXT, list_consume_queues
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.repair.rebuild_consume_queue import RebuildOptions, rebuild_consume_queues
from tests.golden_store import RECOVERED_NAMES, STORE_NAMES, golden, tree_state
from tests.store_core.closed_later import closed_later
from tests.store_core.queue.queue_writers import bitmaps_of, ext_reader
from tests.store_core.snapshot.golden_snapshot import open_golden
from tests.store_core.test_message_store_golden import bitmaps_by_offset
from tests.store_factory import StoreFactory, small_store

ROOTS = ("consumequeue", "consumequeue_ext", "batchconsumequeue")
WHOLE = [
    "batch-551", "batch-5x", "classic-4x", "classic-5x", "cluster-4x", "cluster-5x",
    "cluster-5x-ext", "crashed-551", "crashed-5x", "empty-5x", "ext-5x", "multipath-5x",
    "onefile-551", "onefile-5x",
]  # fmt: skip
"""Stores whose queue files all follow from the log, every byte of them."""


def files_of(root):
    """{path below the root: bytes} of all queue files."""
    paths = [p for name in ROOTS for p in (Path(root) / name).rglob("*") if p.is_file()]
    return {str(p.relative_to(root)): p.read_bytes() for p in paths}


def oracle_bitmaps(columns):
    """The filter bitmaps that the golden store's writer made up (ext-5x)."""
    made_up = [
        None if offset % 3 == 0 else bytes([offset * 31 % 256]) * (8 + offset % 7)
        for offset in columns.frames.column("commit_log_offset").tolist()
    ]
    return np.array(made_up, object)


def kept_bitmaps(root):
    """The filter bitmaps in a store's own extension units; they are not in the log."""
    directory, bitmap_of = StoreDirectory(str(root)), {}
    ext_paths = list_consume_queues(directory, CONSUME_QUEUE_EXT).queues
    for key, path in list_consume_queues(directory).queues.items():
        queue = ConsumeQueue.open(directory, *key, path, None)
        units = queue.read_units(0, queue.end_of_units())
        read = ext_reader(directory, ext_paths[key])
        found = bitmaps_of(read, np.ascontiguousarray(units["tags_code"]))
        bitmap_of.update(zip(units["commit_log_offset"].tolist(), found))
    assert any(bitmap_of.values())
    return bitmaps_by_offset(bitmap_of)


def rebuild_golden(name, target, recovered=None):
    snapshot = open_golden(name, recovered)
    store = golden(name, name in RECOVERED_NAMES if recovered is None else recovered)
    bitmaps = None
    if name == "ext-5x":
        bitmaps = oracle_bitmaps
    elif name == "cluster-5x-ext":
        bitmaps = kept_bitmaps(store.root)
    result = rebuild_consume_queues(snapshot, str(target), RebuildOptions(filter_bitmaps=bitmaps))
    return store, result


@pytest.mark.parametrize("name", WHOLE)
def test_files_are_those_of_rocketmq(name, tmp_path):
    before = tree_state(golden(name, name in RECOVERED_NAMES).root)
    store, result = rebuild_golden(name, tmp_path)
    assert files_of(tmp_path) == files_of(store.root)
    assert tree_state(store.root) == before
    assert (result.known, result.unusable, result.moved) == (0, 0, 0)
    assert (result.refused, result.gaps) == ({}, ())


def test_every_golden_store_is_compared():
    assert sorted(STORE_NAMES) == sorted(
        {"expired-5x", "torn-5x", *(n for n in WHOLE if not n.startswith("cluster-"))}
    )


def test_an_expired_store_gets_fillers_for_what_is_gone(tmp_path):
    """No record of OnlyOld is left in the log: RocketMQ keeps a last file, of deleted records."""
    store, result = rebuild_golden("expired-5x", tmp_path)
    ours, theirs = files_of(tmp_path), files_of(store.root)
    assert sorted(set(theirs) - set(ours)) == ["consumequeue/OnlyOld/0/00000000000000000000"]
    assert set(ours) <= set(theirs)
    min_phy_offset = open_golden("expired-5x").min_phy_offset
    fillers = 0
    for name, data in ours.items():
        mine, real = CQ_UNIT.table(data), CQ_UNIT.table(theirs[name])
        gone = (real["commit_log_offset"] < min_phy_offset) & (real["message_size"] > 0)
        assert mine[~gone].tobytes() == real[~gone].tobytes()
        assert set(mine[gone].tolist()) <= {(0, 0x7FFFFFFF, 0)}
        fillers += int(gone.sum())
    assert fillers
    assert (result.unusable, result.moved) == (0, 0)


def test_a_recovered_store_has_no_stale_units(tmp_path):
    """RocketMQ's recovery cut the log of torn-5x and left the units of the cut records.

    One of the 20 dispatched records after the cut was the first of a file, which was deleted.
    """
    store, result = rebuild_golden("torn-5x", tmp_path)
    ours, theirs = files_of(tmp_path), files_of(store.root)
    assert sorted(ours) == sorted(theirs)
    end = open_golden("torn-5x").end_offset
    stale = 0
    for name, data in ours.items():
        mine, real = CQ_UNIT.table(data), CQ_UNIT.table(theirs[name])
        behind = real["commit_log_offset"] >= end
        assert mine[~behind].tobytes() == real[~behind].tobytes()
        assert not mine[behind].tobytes().strip(b"\0")
        stale += int(behind.sum())
    assert stale == 19
    assert (result.records, result.units, result.gaps) == (800, 800, ())


def test_a_crashed_store_gets_the_units_that_it_lacks(tmp_path):
    """Its last 80 messages were not dispatched; RocketMQ's own recovery does that."""
    store, result = rebuild_golden("crashed-5x", tmp_path, recovered=False)
    recovered = files_of(golden("crashed-5x", True).root)
    ours = files_of(tmp_path)
    assert ours == {name: data for name, data in recovered.items() if name in ours}
    lacking = [name for name, data in ours.items() if files_of(store.root).get(name) != data]
    assert len(lacking) == 17
    assert result.units == 900


def test_damage_in_the_log_is_passed_over_and_told(tmp_path):
    _, result = rebuild_golden("torn-5x", tmp_path, recovered=False)
    assert [gap.commit_log_offset for gap in result.gaps] == [222710, 249590]
    assert result.records == result.units == 899
    assert result.moved == 9  # one message of their queue is lost in the first gap


def open_store(factory, **config):
    factory.write()
    return closed_later(StoreSnapshot(factory.root, MessageStoreConfig(**config)))


def test_batches_and_sizes_of_files(tmp_path, monkeypatch):
    """Many small batches give the files of one large one; sizes are those of the source."""
    factory = small_store(tmp_path / "store", count=300, units_per_file=7)
    view = open_store(factory)
    seen = []
    monkeypatch.setattr("store_core.log.commit_log._BATCH_ROWS", 5)
    monkeypatch.setattr("store_core.tools.repair.rebuild_consume_queue._HELD_ROWS", 11)
    result = rebuild_consume_queues(
        view, str(tmp_path / "target"), progress=lambda *done: seen.append(done)
    )
    assert files_of(tmp_path / "target") == files_of(factory.root)
    assert result[:6] == (300, 4, 300, 0, 0, 0)
    assert seen == sorted(seen)
    assert len(seen) >= 60
    assert seen[-1] == (factory.end_offset, factory.end_offset)


@pytest.mark.parametrize(
    ("config", "file_bytes"),
    [({}, 6_000_000), ({"mapped_file_size_consume_queue": 90}, 100)],
)
def test_sizes_when_the_source_has_no_queues(tmp_path, config, file_bytes):
    factory = StoreFactory(tmp_path / "store")
    factory.add(dispatched=False)
    rebuild_consume_queues(open_store(factory, **config), str(tmp_path / "target"))
    assert [len(data) for data in files_of(tmp_path / "target").values()] == [file_bytes]


def test_only_what_lies_before_the_end_gets_a_unit(tmp_path):
    factory = small_store(tmp_path / "store")
    factory.write()
    end = factory.records[20].commit_log_offset
    view = closed_later(StoreSnapshot(factory.root, None, end))
    assert rebuild_consume_queues(view, str(tmp_path / "target")).units == 20


def test_a_missing_segment_is_a_gap(tmp_path):
    factory = small_store(tmp_path / "store", count=120)
    factory.write()
    factory.segment_path(4096).unlink()
    view = closed_later(StoreSnapshot(factory.root, None, factory.end_offset))
    result = rebuild_consume_queues(view, str(tmp_path / "target"))
    kept = [r for r in factory.records if r.commit_log_offset // 4096 != 1]
    assert result.records == result.units == len(kept)
    assert [gap[:2] for gap in result.gaps] == [(4096, 4096)]


@pytest.mark.parametrize("topic", ["../../escaped", "/escaped", "..", ".", "a\0b", "ü" * 128, ""])
def test_names_that_are_no_directory_are_refused(tmp_path, topic):
    factory = StoreFactory(tmp_path / "store", segment_bytes=1 << 14)
    factory.add("good")
    for _ in range(2):
        factory.add(topic, dispatched=False)
    factory.add("negative", queue_id=-1, dispatched=False)
    result = rebuild_consume_queues(open_store(factory), str(tmp_path / "a" / "target"))
    assert result.refused == {(topic, 0): 2, ("negative", -1): 1}
    assert result[:3] == (4, 1, 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "store"]
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["target"]
    assert [p.parent.parent.name for p in (tmp_path / "a").rglob("0" * 20)] == ["good"]


def test_queues_that_are_there_are_not_overwritten(tmp_path):
    factory = small_store(tmp_path / "store")
    view = open_store(factory)
    before = tree_state(factory.root)
    with pytest.raises(StoreFormatError, match="another directory"):
        rebuild_consume_queues(view, str(factory.root))
    assert tree_state(factory.root) == before


def test_kinds_of_queues_can_be_chosen(tmp_path):
    factory = small_store(tmp_path / "store")
    view = open_store(factory)
    options = RebuildOptions(batch_topics=frozenset({"TopicB"}), consume_queue_ext=True)
    rebuild_consume_queues(view, str(tmp_path / "target"), options)
    names = {tuple(Path(name).parts[:2]) for name in files_of(tmp_path / "target")}
    assert names == {
        ("batchconsumequeue", "TopicB"),
        ("consumequeue", "TopicA"),
        ("consumequeue_ext", "TopicA"),
    }


def test_topics_json_says_which_queues_are_batch_queues(tmp_path):
    factory = small_store(tmp_path / "store")
    factory.write()
    (factory.root / "config" / "topics.json").write_text(
        '{"topicConfigTable":{"TopicB":{"topicName":"TopicB",'
        '"attributes":{"queue.type":"BatchCQ"}}}}'
    )
    view = closed_later(StoreSnapshot(factory.root))
    rebuild_consume_queues(view, str(tmp_path / "target"))
    written = list((tmp_path / "target" / "batchconsumequeue").iterdir())
    assert [path.name for path in written] == ["TopicB"]


def test_new_files_and_directories_are_each_synced_once(tmp_path, monkeypatch):
    synced = []
    for function in ("queue.queue_files.sync_file", "queue.queue_files.flush_directory"):
        monkeypatch.setattr(f"store_core.{function}", lambda path: synced.append(Path(path)))
    target = tmp_path / "target"
    rebuild_consume_queues(open_store(small_store(tmp_path / "store")), str(target))
    files = [path for path in target.rglob("*") if path.is_file()]
    directories = [tmp_path, target, *(path for path in target.rglob("*") if path.is_dir())]
    queues = target / "consumequeue"
    assert {path.parent for path in directories} >= {queues, queues / "TopicA", queues / "TopicB"}
    assert set(synced) == {*files, *directories}
    assert len(synced) == len(files) + len(directories)  # each once
