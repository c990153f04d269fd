# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import shutil
import time

import pytest

from store_core import MessageStoreConfig, StoreFormatError
from store_core.codec.message_batch_codec import MessageColumns
from store_core.files.byte_source import LocalByteSource
from store_core.files.store_directory import StoreDirectory
from store_core.index.index_entries import index_entries
from store_core.index.index_file import IndexFile
from store_core.index.index_queries import IndexService
from store_core.index.index_writer import IndexWriter, index_file_names
from store_core.layout import index_file_bytes
from store_core.log.commit_log import scan_frames, scan_log
from store_core.log.log_scan import Gap, refuse_gap
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.repair.rebuild_in_place import rebuild_index
from tests.golden_store import CLUSTER_NAMES, RECOVERED_NAMES, STORE_NAMES, golden
from tests.store_factory import StoreFactory, small_store

NOW_MS = 1_800_000_000_000
WHOLE = (*sorted({*STORE_NAMES} - {*RECOVERED_NAMES, "expired-5x"}), *CLUSTER_NAMES)
"""Stores whose index covers the whole log, written without a stop in between."""


def config_of(store):
    return MessageStoreConfig.from_properties(store.config_properties)


def view_of(store, end_offset=None):
    return StoreSnapshot(store.root, config_of(store), end_offset)


def sizes_of(store):
    config = config_of(store)
    return config.max_hash_slot_num, config.max_index_num


def contents(root):
    directory = root / "index"
    return {name: (directory / name).read_bytes() for name in index_file_names(directory)}


def clock_of(names):
    """Return a clock that gives the times in the names of files, then later ones."""
    times = [time.mktime(time.strptime(n[:14], "%Y%m%d%H%M%S")) * 1000 + int(n[14:]) for n in names]
    ticks = itertools.chain(map(int, times), itertools.count(NOW_MS))
    return lambda: next(ticks)


def rebuilt(store, target, end_offset=None, names=()):
    with view_of(store, end_offset) as view:
        return rebuild_index(view, target, *sizes_of(store), clock_of(names))


def pairs(store, root):
    """Return (hash, commit log offset) of all entries, in order."""
    found = []
    for name in index_file_names(root / "index"):
        with LocalByteSource(str(root / "index" / name)) as source:
            rows = IndexFile(source, *sizes_of(store)).entries()
            found += zip(rows["key_hash"].tolist(), rows["commit_log_offset"].tolist())
    return found


@pytest.mark.parametrize("name", WHOLE)
def test_files_are_those_of_the_store(name, tmp_path):
    store = golden(name)
    own = contents(store.root)
    result = rebuilt(store, tmp_path, names=own)
    assert contents(tmp_path) == own
    assert result.files == tuple(own)
    assert result.gaps == ()
    assert result.entries == len(pairs(store, store.root))
    if not store.is_cluster:
        assert result.records == store.meta["line_counts"]["messages.jsonl"]
        assert result.flushed_end_timestamp == store.meta["checkpoint"]["index_msg_timestamp"]


def test_files_up_to_the_last_record_that_was_dispatched(tmp_path):
    store = golden("crashed-5x")
    own = contents(store.root)
    last = pairs(store, store.root)[-1][1]
    records = [line["commit_log_offset"] for line in store.dump("messages")]
    following = records[records.index(last) + 1]
    rebuilt(store, tmp_path, following, own)
    assert contents(tmp_path) == own


def split_by_recovery(store):
    """Return the entries before those that RocketMQ's recovery wrote, those it wrote again, others.

    It deletes the index file that is not full. 5.3.3 then begins a new one with the record at the
    border, whose entries it already had. 5.5.1 begins with a later segment, and the entries in
    between are lost.
    """
    kept = {*index_file_names(store.root / "index")}
    kept &= {*index_file_names(golden(store.name).root / "index")}
    entries = pairs(store, store.root)
    full = len(kept) * (sizes_of(store)[1] - 1)
    border = entries[full - 1][1]
    doubled = [pair for pair in entries[full:] if pair[1] == border]
    return entries[:full], doubled, entries[full + len(doubled) :]


def lost_by_recovery(store):
    """Return the entries that the index of a recovered store lacks."""
    before, _, after = split_by_recovery(store)
    last, first = before[-1][1], after[0][1]
    with view_of(store) as view:
        (frames,) = scan_frames(view.log, last, first, on_gap=refuse_gap)
    entries = index_entries(MessageColumns(frames), with_tags=store.name.endswith("551"))
    found = list(zip(entries.key_hash.tolist(), entries.commit_log_offset.tolist()))
    return found[len([pair for pair in before if pair[1] == last]) :]


@pytest.mark.parametrize("name", RECOVERED_NAMES)
def test_after_recovery_no_entry_is_there_twice_or_lost(name, tmp_path):
    store = golden(name, recovered=True)
    rebuilt(store, tmp_path)
    before, doubled, after = split_by_recovery(store)
    lost = lost_by_recovery(store)
    assert (len(doubled) > 0, len(lost) > 0) == ((False, True) if "551" in name else (True, False))
    assert pairs(store, tmp_path) == before + lost + after


@pytest.mark.parametrize("lost", [0, 1, 2, 5])
@pytest.mark.parametrize("name", RECOVERED_NAMES)
def test_what_is_missing_after_a_crash_is_added(name, lost, tmp_path):
    end = golden(name).meta["max_phy_offset"]
    store = golden(name)
    rebuilt(store, tmp_path / "whole", end)
    whole = list(contents(tmp_path / "whole").values())
    names = index_file_names(store.root / "index")
    kept = names[:4] if name == "torn-5x" else names  # the fifth refers to cut records
    index = tmp_path / "index"
    index.mkdir()
    for file in kept[: len(kept) - lost]:
        shutil.copy(store.root / "index" / file, index)
    writer = IndexWriter(index, *sizes_of(store), lambda: NOW_MS)
    with view_of(store, end) as view, writer:
        for part in scan_log(view.log, view.min_phy_offset, view.end_offset):
            writer.append(index_entries(MessageColumns(part), with_tags=name.endswith("551")))
    assert list(contents(tmp_path).values()) == whole


def test_a_cut_log_gives_the_index_of_what_is_left(tmp_path):
    torn, recovered = golden("torn-5x"), golden("torn-5x", recovered=True)
    rebuilt(torn, tmp_path / "a", torn.meta["max_phy_offset"])
    rebuilt(recovered, tmp_path / "b")
    assert list(contents(tmp_path / "a").values()) == list(contents(tmp_path / "b").values())


def test_damage_is_left_out_and_named(tmp_path):
    store = golden("torn-5x")
    result = rebuilt(store, tmp_path)
    start = result.gaps[0].commit_log_offset
    stop = start + result.gaps[0].bytes_lost
    assert start == store.meta["max_phy_offset"]
    ours = pairs(store, tmp_path)
    assert not any(start <= offset < stop for _, offset in ours)
    beyond = [pair for pair in ours if pair[1] >= stop]
    crashed = golden("crashed-5x", recovered=True)
    theirs = pairs(crashed, crashed.root)
    assert len(beyond) > 100
    assert beyond == [pair for pair in theirs if stop <= pair[1] <= beyond[-1][1]]


def test_of_an_expired_log_the_records_that_are_left(tmp_path):
    store = golden("expired-5x")
    rebuilt(store, tmp_path)
    first = store.meta["min_phy_offset"]
    assert first > 0
    assert pairs(store, tmp_path) == [p for p in pairs(store, store.root) if p[1] >= first]


@pytest.fixture
def answers(tmp_path):
    """Return a function that gives the dumped queries of a store, answered by a rebuilt index."""

    def ask(store):
        rebuilt(store, tmp_path)
        service = IndexService(StoreDirectory(str(tmp_path)), config_of(store))
        for line in store.dump("index_query"):
            query = (line["topic"], line["key"], line["max_num"], line["begin"], line["end"])
            found, *newest = service.query_offset(*query)
            yield line, found
            if line["phy_offsets"]:
                last = (line["index_last_update_timestamp"], line["index_last_update_phy_offset"])
                assert tuple(newest) == last
        service.close()

    return ask


@pytest.mark.parametrize("name", sorted({*WHOLE} & {*STORE_NAMES}))
def test_answers_are_those_of_the_store(name, answers):
    for line, found in answers(golden(name)):
        assert found == line["phy_offsets"], line


@pytest.mark.parametrize("name", sorted({*RECOVERED_NAMES} - {"crashed-551"}))
def test_answers_after_recovery_name_nothing_twice(name, answers):
    store = golden(name, recovered=True)
    border = split_by_recovery(store)[1][0][1]
    fewer = 0
    for line, found in answers(store):
        theirs = line["phy_offsets"]
        if theirs != found:
            theirs.remove(border)
            fewer += 1
        assert found == theirs, line
    assert fewer > 0


def test_answers_after_recovery_by_5_5_name_what_it_lost(answers):
    store = golden("crashed-551", recovered=True)
    lost = {offset for _, offset in lost_by_recovery(store)}
    more = 0
    for line, found in answers(store):
        theirs = line["phy_offsets"]
        if len(found) < line["max_num"]:
            assert [offset for offset in found if offset in theirs] == theirs, line
        assert {*found} - {*theirs} <= lost, line
        more += found != theirs
    assert more > 0


def test_answers_of_an_expired_log(answers):
    store = golden("expired-5x")
    first = store.meta["min_phy_offset"]
    differing = 0
    with view_of(store) as view:
        for line, found in answers(store):
            theirs = [offset for offset in line["phy_offsets"] if offset >= first]
            assert [o for o in found if o in theirs] == [o for o in theirs if o in found]
            for offset in {*found} ^ {*theirs}:  # times are whole seconds since a file's begin
                differing += 1
                timestamp = view.store_timestamp_at(offset)
                assert min(abs(timestamp - line[bound]) for bound in ("begin", "end")) < 1000
    assert differing < 5


def test_an_index_that_is_there_is_not_touched(tmp_path):
    store = golden("onefile-5x")
    rebuilt(store, tmp_path)
    before = contents(tmp_path)
    with pytest.raises(StoreFormatError, match="move them away"):
        rebuilt(store, tmp_path)
    assert contents(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_other_files_in_the_way_are_seen_at_once(tmp_path):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "notes.txt").write_text("x")
    with pytest.raises(StoreFormatError, match="move them away"):
        rebuilt(golden("onefile-5x"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_an_interrupted_rebuild_leaves_no_index(tmp_path):
    store = golden("classic-5x")

    class StoppedError(Exception):
        pass

    def stop(*_):
        raise StoppedError

    with view_of(store) as view, pytest.raises(StoppedError):
        rebuild_index(view, tmp_path, *sizes_of(store), lambda: NOW_MS, stop)
    assert not (tmp_path / "index").exists()
    (tmp_path / "index").mkdir()
    rebuilt(store, tmp_path, names=contents(store.root))
    assert contents(tmp_path) == contents(store.root)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_progress_reaches_the_end(tmp_path):
    store = golden("expired-5x")
    calls = []
    with view_of(store) as view:
        total = view.end_offset - view.min_phy_offset
        rebuild_index(
            view, tmp_path, *sizes_of(store), lambda: NOW_MS, lambda *call: calls.append(call)
        )
    assert calls == sorted(calls)
    assert {of for _, of in calls} == {total}
    assert calls[-1] == (total, total)


def test_a_missing_segment_is_a_gap(tmp_path):
    factory = small_store(tmp_path / "store", 120, segment_bytes=4096)
    root = factory.write()
    assert len(factory.data) > 3 * 4096
    (root / "commitlog" / f"{4096:020d}").unlink()
    with StoreSnapshot(root, MessageStoreConfig()) as view:
        result = rebuild_index(view, tmp_path / "new", 8, 64, lambda: NOW_MS)
    assert [(gap.commit_log_offset, gap.bytes_lost) for gap in result.gaps] == [(4096, 4096)]
    kept = [r for r in factory.records if r.commit_log_offset // 4096 != 1]
    assert result.records == len(kept)


def test_no_messages(tmp_path):
    result = rebuilt(golden("empty-5x"), tmp_path)
    assert result[:3] == ((), 0, 0)
    assert contents(tmp_path) == {}


def test_messages_without_keys(tmp_path):
    factory = StoreFactory(tmp_path / "store")
    factory.add()
    with StoreSnapshot(factory.write(), MessageStoreConfig()) as view:
        result = rebuild_index(view, tmp_path / "new", 8, 64, lambda: NOW_MS)
    assert (result.records, result.entries) == (1, 0)
    (data,) = contents(tmp_path / "new").values()
    assert len(data) == index_file_bytes(8, 64)
    assert data.strip(b"\0") == b"\1"  # the number of the first entry


def test_batches_do_not_show(tmp_path, monkeypatch):
    monkeypatch.setattr("store_core.log.commit_log._BATCH_ROWS", 7)
    store = golden("classic-4x")
    with view_of(store) as view:
        assert (
            sum(
                not isinstance(part, Gap)
                for part in scan_log(view.log, view.min_phy_offset, view.end_offset)
            )
            > 300
        )
    rebuilt(store, tmp_path, names=contents(store.root))
    assert contents(tmp_path) == contents(store.root)
