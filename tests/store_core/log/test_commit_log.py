from __future__ import annotations

import numpy as np
import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreFormatError
from store_core.files.store_directory import StoreDirectory
from store_core.log import segment_records
from store_core.log.commit_log import CommitLog, commit_log_directories
from tests.golden_store import golden
from tests.store_core.remote import RemoteDirectory
from tests.store_factory import StoreFactory, small_store

SEGMENT = 4096


def open_log(directory, **config):
    return CommitLog(directory, MessageStoreConfig(**config))


@pytest.fixture(params=["local", "remote"])
def log_and_store(request, tmp_path):
    store = small_store(tmp_path, 60, segment_bytes=SEGMENT, first_offset=2 * SEGMENT)
    root = str(store.write())
    directory = StoreDirectory(root) if request.param == "local" else RemoteDirectory(root)
    log = open_log(directory)
    yield log, store
    log.close()


def test_directories_are_listed_once(tmp_path):
    directory = StoreDirectory(str(tmp_path))

    def names(**config):
        found = commit_log_directories(directory, MessageStoreConfig(**config))
        return [path[len(str(tmp_path)) + 1 :] for path in found]

    assert names() == ["commitlog"]
    assert names(store_path_commit_log="a, b,,a") == ["a", "b"]
    assert names(store_path_commit_log="a", read_only_commit_log_store_paths="c,a") == ["a", "c"]


def test_segments_of_several_directories_are_one_log():
    store = golden("multipath-5x")
    config = MessageStoreConfig.from_properties(store.config_properties)
    log = CommitLog(StoreDirectory(str(store.root)), config)
    assert len({segment.path.rsplit("/", 1)[0] for segment in log.segments}) == 3
    offsets = [row["commit_log_offset"] for row in store.dump("messages")]
    end = store.meta["max_phy_offset"]
    assert all(log.is_record(offset, end) for offset in offsets)
    log.close()


def test_a_wrong_segment_size_names_the_option(tmp_path):
    small_store(tmp_path, 60, segment_bytes=SEGMENT).write()
    with pytest.raises(StoreFormatError, match="mappedFileSizeCommitLog"):
        open_log(StoreDirectory(str(tmp_path)), mapped_file_size_commit_log=5000)


def test_records_are_found_by_offset(log_and_store):
    log, store = log_and_store
    end = store.end_offset
    assert log.min_offset == 2 * SEGMENT
    starts = {r.commit_log_offset for r in store.records}
    for offset in range(2 * SEGMENT - 5, 3 * SEGMENT + 300):
        assert log.is_record(offset, end) == (offset in starts)
    for offset in (-1, 0, end, 2**62):
        assert not log.is_record(offset, end)
        assert log.store_timestamp_at(offset, end) is None
    last = store.records[-1]
    assert not log.is_record(last.commit_log_offset, end - 1)
    assert log.store_timestamp_at(last.commit_log_offset, end) == last.store_timestamp


def test_the_next_record_lies_in_the_same_segment(log_and_store):
    log, store = log_and_store
    end, starts = store.end_offset, sorted(r.commit_log_offset for r in store.records)
    for offset in range(2 * SEGMENT, 3 * SEGMENT, 37):
        behind = [s for s in starts if offset <= s < 3 * SEGMENT]
        assert log.next_record(offset, end) == (behind[0] if behind else -1)
        if behind:
            assert log.next_record(offset, end, behind[0]) == -1
            assert log.next_record(offset, end, behind[0] + 1) == behind[0]
    assert log.next_record(0, end) == -1


def test_the_first_record_of_each_segment(log_and_store):
    log, store = log_and_store
    for segment in log.segments:
        first = next(r for r in store.records if r.commit_log_offset == segment.from_offset)
        assert log.first_store_timestamp(segment, store.end_offset) == first.store_timestamp
        assert log.first_store_timestamp(segment, segment.from_offset) is None
        assert log.first_store_timestamp(segment, segment.from_offset + 50) is None


def test_frames_at_any_offsets(log_and_store):
    log, store = log_and_store
    starts = {r.commit_log_offset: r for r in store.records}
    for segment in log.segments:
        offsets = np.arange(segment.from_offset, segment.from_offset + SEGMENT)
        frames = log.frames_at(segment, offsets, store.end_offset)
        for row, offset in enumerate(offsets.tolist()):
            assert bool(frames.ok[row]) == (offset in starts)
            if offset in starts:
                record = starts[offset]
                at, length = int(frames.body_start[row]), int(frames.body_length[row])
                assert bytes(frames.data[at : at + length]) == record.body
        for end in (0, segment.from_offset, segment.from_offset + 1, segment.from_offset + 95):
            assert not log.frames_at(segment, offsets, end).ok.any()


def test_few_files_are_open_at_once(tmp_path):
    store = StoreFactory(tmp_path, segment_bytes=200)
    for _ in range(40):
        store.add()
    log = open_log(StoreDirectory(str(store.write())))
    sources = [log.source(segment) for segment in log.segments]
    assert len(sources) == 40
    assert log.source(log.segments.segments[-1]) is sources[-1]
    assert len(log._open) == 16
    log.close()
    assert len(log._open) == 0


def test_a_remote_segment_is_never_read_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_records, "_MAX_BLANK_BYTES", 1 << 16)
    size = 4 << 20
    store = StoreFactory(tmp_path, segment_bytes=size)
    while store.left_in_segment > 300_000:
        store.add(body=b"x" * 20_000)
    directory = RemoteDirectory(str(store.write()))
    log = open_log(directory)
    (segment,) = log.segments
    source = log.source(segment)
    offsets = np.array([r.commit_log_offset for r in store.records[::20]])
    middle = store.records[len(store.records) // 2]
    calls = [
        (lambda: log.is_record(middle.commit_log_offset, size), 60_000),
        (lambda: log.next_record(middle.commit_log_offset + 1, size), 130_000),
        (lambda: log.first_store_timestamp(segment, size), 60_000),
        (lambda: log.frames_at(segment, offsets, size), 40_000 * len(offsets)),
    ]
    for call, most in calls:
        source.bytes_read = 0
        assert call() is not False
        assert source.bytes_read < most
    assert log.frames_at(segment, offsets, size).ok.all()
    log.close()
