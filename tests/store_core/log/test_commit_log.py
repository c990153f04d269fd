# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreFormatError
from store_core.files.store_directory import StoreDirectory
from store_core.layout import BORNHOST_V6_FLAG, HEADER_IPV4
from store_core.log import commit_log, log_scan
from store_core.log.commit_log import (
    CommitLog,
    commit_log_directories,
    last_begun_by,
    narrow_by_time,
    scan_log,
)
from store_core.log.log_scan import Gap
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.examples import examples
from tests.golden_store import GOLDEN_NAMES, golden
from tests.store_core.remote import RemoteDirectory
from tests.store_factory import START_MS, StoreFactory, small_store

SEGMENT = 4096
HOUR = 3_600_000


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
    monkeypatch.setattr(log_scan, "_MAX_BLANK_BYTES", 1 << 16)
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


def write_log(root, times, segment_bytes=2048):
    factory = StoreFactory(root, segment_bytes=segment_bytes)
    for time_ms in times:
        factory.add(store_timestamp=START_MS + time_ms)
    factory.write()
    log = CommitLog(StoreDirectory(str(root)), MessageStoreConfig())
    return factory, log


def largest_step_back(times):
    highest, step = times[0], 0
    for time_ms in times:
        highest = max(highest, time_ms)
        step = max(step, highest - time_ms)
    return step


def check(factory, log, begin, stop, slack):
    """Check that no matching record is outside the range; return the range."""
    begin_ms = None if begin is None else START_MS + begin
    stop_ms = None if stop is None else START_MS + stop
    low, high = narrow_by_time(log, factory.end_offset, begin_ms, stop_ms, slack)
    assert 0 <= low <= high <= factory.end_offset
    for record in factory.records:
        time_ms = record.store_timestamp
        if (begin_ms is None or time_ms >= begin_ms) and (stop_ms is None or time_ms < stop_ms):
            assert low <= record.commit_log_offset < high
    return low, high


@st.composite
def random_walks(draw):
    """Return times that grow, except for some steps back."""
    now, times = 0, []
    steps = st.sampled_from([0, 1, 1000, 1000, 60_000, -5_000, -HOUR])
    for step in draw(st.lists(steps, min_size=1, max_size=60)):
        now = max(now + step, 0)
        times.append(now)
    return times


bounds = st.none() | st.integers(-HOUR, 2 * HOUR)


@pytest.mark.parametrize("stop_bytes", [1, 100, 64 << 10])
@settings(max_examples=examples(25), deadline=None)
@given(times=random_walks(), begin=bounds, length=bounds)
def test_no_matching_record_is_excluded(tmp_path_factory, stop_bytes, times, begin, length):
    root = tmp_path_factory.mktemp("time")
    factory, log = write_log(root, times)
    stop = None if length is None else (begin or 0) + length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log, "_STOP_BYTES", stop_bytes)
        check(factory, log, begin, stop, largest_step_back(times))
        for near in {t for time_ms in times[:4] for t in (time_ms - 1, time_ms, time_ms + 1)}:
            check(factory, log, near, near + 1, largest_step_back(times))
    log.close()


@pytest.mark.parametrize("slack", [5_000, HOUR])
def test_a_step_of_exactly_the_slack_is_covered(tmp_path, monkeypatch, slack):
    monkeypatch.setattr(commit_log, "_STOP_BYTES", 1)
    ahead = [t * 1000 for t in range(40)]
    times = [t + slack for t in ahead] + [ahead[-1] + t * 1000 for t in range(40)]
    times[40:] = [times[39] - slack, *(times[39] - slack + t * 1000 for t in range(1, 40))]
    factory, log = write_log(tmp_path, times)
    for time_ms in sorted(set(times)):
        check(factory, log, time_ms, time_ms + 1, slack)
    log.close()


def test_the_range_is_tight_without_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(commit_log, "_STOP_BYTES", 1)
    factory, log = write_log(tmp_path, [t * 1000 for t in range(100)])
    low, high = check(factory, log, 40_000, 60_000, 0)
    inside = [r for r in factory.records if low <= r.commit_log_offset < high]
    assert 20 <= len(inside) <= 24
    assert narrow_by_time(log, factory.end_offset, None, None, 0) == (0, factory.end_offset)
    low, high = narrow_by_time(log, factory.end_offset, START_MS + 10**9, None, 0)
    assert low in {r.commit_log_offset for r in factory.records[-4:]}
    low, high = narrow_by_time(log, factory.end_offset, None, START_MS, 0)
    assert (low, high) == (0, 0)
    log.close()


def test_few_of_a_thousand_segments_are_opened(tmp_path, monkeypatch):
    factory, log = write_log(tmp_path, [t * 1000 for t in range(1000)], segment_bytes=200)
    assert len(log.segments) == 1000
    opened = []
    original = StoreDirectory.open

    def counting(self, path):
        opened.append(path)
        return original(self, path)

    monkeypatch.setattr(StoreDirectory, "open", counting)
    low, high = check(factory, log, 400_000, 401_000, 5_000)
    assert len(set(opened)) <= 24
    assert high - low <= 14 * 200
    log.close()


def test_damaged_heads_of_segments_widen_the_range_only(tmp_path, monkeypatch):
    monkeypatch.setattr(commit_log, "_STOP_BYTES", 1)
    factory, log = write_log(tmp_path, [t * 1000 for t in range(100)])
    log.close()
    for path in sorted((tmp_path / "commitlog").iterdir())[1::2]:
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(bytes(50) + content[50:])
    log = CommitLog(StoreDirectory(str(tmp_path)), MessageStoreConfig())
    readable = [r for r in factory.records if log.is_record(r.commit_log_offset, 10**9)]
    assert len(readable) < len(factory.records)
    for begin in range(0, 100_000, 7_000):
        check(factory, log, begin, begin + 3_000, 0)
    log.close()


def test_old_records_in_a_closing_blank_record_prove_nothing(tmp_path, monkeypatch):
    """They are older than the records before them: a log that was cut and grew again."""
    monkeypatch.setattr(commit_log, "_STOP_BYTES", 1)
    old = StoreFactory(tmp_path, segment_bytes=4096)
    while old.left_in_segment > 150:
        old.add()
    new = StoreFactory(tmp_path, segment_bytes=4096)
    while new.end_offset < 2000:
        new.add(body=b"another", store_timestamp=START_MS + HOUR + new.end_offset)
    new.roll()
    start = next(r.commit_log_offset for r in old.records if r.commit_log_offset > 2300)
    new.data[start:4000] = old.data[start:4000]
    new.add(store_timestamp=START_MS + 2 * HOUR)
    new.write()
    log = CommitLog(StoreDirectory(str(tmp_path)), MessageStoreConfig())
    for record in new.records:
        begin = record.store_timestamp - START_MS
        check(new, log, begin, begin + 1, 0)
    log.close()


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_one_damaged_time_excludes_no_other_record(name, tmp_path, monkeypatch):
    """Any record may be a probe; no checksum covers its time."""
    monkeypatch.setattr(commit_log, "_STOP_BYTES", 1)
    store = golden(name)
    root = store.copy_to(tmp_path)
    config = MessageStoreConfig.from_properties(store.options)
    with StoreSnapshot(root, config) as view:
        log, end = view.log, view.end_offset
        parts = [part for part in scan_log(log, log.min_offset, end) if not isinstance(part, Gap)]
        offsets, times, flags = (
            np.concatenate([np.empty(0, np.int64), *(part.column(column) for part in parts)])
            for column in ("commit_log_offset", "store_timestamp", "sys_flag")
        )
        slack = largest_step_back(times.tolist()) if len(times) else 0
        heads = np.flatnonzero(np.isin(offsets, [s.from_offset for s in log.segments]))
        rows = np.arange(len(offsets))
        near = np.unique(times)[:: max(len(times) // 3, 1)].tolist()
        windows = [(t, t + 1) for t in near] + [(None, t) for t in near[1:2]]
        for row in {*heads[:4].tolist(), *rows[:: max(len(rows) // 3, 1)].tolist()}:
            segment = log.segments.find(int(offsets[row]))
            at = int(offsets[row]) - segment.from_offset + HEADER_IPV4.at("store_timestamp")
            at += 12 * bool(flags[row] & BORNHOST_V6_FLAG)
            for bit in (24, 41, 61):
                flip(segment.path, at + 7 - bit // 8, bit % 8)
                damaged = log.store_timestamp_at(int(offsets[row]), end)
                assert damaged == int(times[row]) ^ (1 << bit)
                for begin, stop in windows:
                    low, high = narrow_by_time(log, end, begin, stop, slack)
                    wanted = rows != row
                    wanted &= True if begin is None else times >= begin
                    wanted &= times < stop
                    assert ((offsets[wanted] >= low) & (offsets[wanted] < high)).all()
                flip(segment.path, at + 7 - bit // 8, bit % 8)


def flip(path, position, bit):
    with Path(path).open("r+b") as file:
        file.seek(position)
        value = file.read(1)[0] ^ (1 << bit)
        file.seek(position)
        file.write(bytes([value]))


def test_a_segment_is_begun_by_a_time_if_two_records_say_so(tmp_path):
    factory, log = write_log(tmp_path, [t * 1000 for t in range(60)])
    second, end = log.segments.segments[1], factory.end_offset
    begun = log.first_store_timestamp(second, end)
    assert last_begun_by(log, end, begun + 999) == 0
    assert last_begun_by(log, end, begun + 1000) == second.from_offset
    flip(second.path, HEADER_IPV4.at("store_timestamp") + 2, 1)
    assert last_begun_by(log, end, begun - 1) == 0
    log.close()
