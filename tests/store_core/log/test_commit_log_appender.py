# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import ipaddress
import itertools
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from store_core.codec.message_codec import decode_message, encode_message, verify_property_crc
from store_core.codec.record_encoder import encode_records, reserve_property_crc
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.log.commit_log_appender import CommitLogAppender, SegmentNotMadeError
from tests.golden_store import golden
from tests.store_core.putting import PRODUCER_NUMBERS

HOST = bytes([192, 168, 7, 8, 0, 0, 42, 159])
OPTION = "mappedFileSizeCommitLog"
SEGMENT = 1024
GOLDEN = ["classic-5x", "classic-4x", "multipath-5x", "ext-5x", "batch-5x", "expired-5x"]
BATCH_TOPIC = "BatchSource"
"""Its messages were put as plain batches, each of which must go into one segment."""

WITHOUT_BATCHES = [name for name in GOLDEN if name not in ("classic-4x", "batch-5x")]


class Clock:
    def __init__(self, now=0):
        self.now = now

    def __call__(self):
        return self.now


def message(body=b"", queue_offset=0, **fields):
    return bytearray(
        encode_message(
            **{
                "topic": b"T",
                "body": body,
                "properties_raw": b"",
                "commit_log_offset": 0,
                "queue_offset": queue_offset,
                "queue_id": 0,
                "born_timestamp": 1,
                "born_host": HOST,
                "store_timestamp": 0,
                "store_host": HOST,
                **fields,
            }
        )
    )


EMPTY = len(message())


def block(lengths):
    bodies = pa.array([bytes(n) for n in lengths], pa.binary())
    count = len(lengths)
    columns = {"topic": [b"T"] * count, "body": bodies, "properties_raw": [b""] * count}
    return encode_records(
        pa.record_batch({n: pa.array(c, pa.binary()) for n, c in columns.items()}), store_host=HOST
    )


@pytest.fixture
def queue(tmp_path):
    made = MappedFileQueue([str(tmp_path / "commitlog")], SEGMENT, option=OPTION)
    yield made
    made.close()


def data(queue):
    return b"".join(Path(f.path).read_bytes() for f in queue.mapped_files)


def test_a_record_gets_its_place_and_time(queue):
    clock = Clock(5)
    appender = CommitLogAppender(queue, clock)
    first = appender.append(message(b"a"), 7)
    clock.now = 6
    second = appender.append(message(b"bc", born_host=bytes(20)), 8)
    assert first == (0, EMPTY + 1, 5)
    assert second == (EMPTY + 1, EMPTY + 14, 6)
    for where, queue_offset in ((first, 7), (second, 8)):
        record = decode_message(data(queue), where.commit_log_offset, where.commit_log_offset, "")
        assert record.queue_offset == queue_offset
        assert record.store_timestamp == where.store_timestamp
    assert queue.last.store_timestamp == 6


def test_the_property_crc_is_that_of_the_record_in_its_place(queue):
    appender = CommitLogAppender(queue, Clock(5))
    for n in range(8):
        record = message(bytes(100), properties_raw=reserve_property_crc(b"a\1b"))
        at = appender.append(record, n, property_crc=True).commit_log_offset
        assert verify_property_crc(data(queue)[at : at + len(record)]) is True
    assert queue.min_offset < SEGMENT <= at


@pytest.mark.parametrize("as_block", [False, True])
@pytest.mark.parametrize(("spare", "rolls"), [(0, False), (-1, True), (-40, True)])
def test_eight_bytes_stay_for_the_blank_record(queue, as_block, spare, rolls):
    appender = CommitLogAppender(queue, Clock())
    appender.append(message(bytes(SEGMENT - 2 * EMPTY - 8 + -spare)), 0)
    if as_block:
        (offset,) = appender.append_records(block([0]), np.zeros(1, np.int64)).commit_log_offsets
    else:
        offset = appender.append(message(), 0).commit_log_offset
    left = EMPTY + 8 + spare
    assert offset == (SEGMENT if rolls else SEGMENT - left)
    if rolls:
        blank = left.to_bytes(4, "big") + bytes.fromhex("cbd43194")
        assert data(queue)[SEGMENT - left : SEGMENT] == blank + bytes(left - 8)


def test_a_block_is_divided_at_segment_ends_or_kept_together(queue):
    appender = CommitLogAppender(queue, Clock())
    records, offsets = block([200] * 5), np.arange(5)
    size = EMPTY + 200
    parts = [appender.append_records(records, offsets)]
    parts.append(appender.append_records(records, offsets, first=parts[0].stop))
    assert [(p.first, p.stop) for p in parts] == [(0, 3), (3, 5)]
    assert parts[1].commit_log_offsets.tolist() == [SEGMENT, SEGMENT + size]
    rest = appender.append_records(records, offsets, first=5)
    assert (rest.first, rest.stop, len(rest.commit_log_offsets)) == (5, 5, 0)
    together = appender.append_records(block([200] * 2), offsets[:2], one_segment=True)
    assert together.commit_log_offsets.tolist() == [2 * SEGMENT, 2 * SEGMENT + size]


def test_what_never_fits_changes_nothing(queue):
    appender = CommitLogAppender(queue, Clock())
    appender.append(message(), 0)
    before = data(queue)
    with pytest.raises(ValueError, match=r"1017 bytes .* takes at most 1016"):
        appender.append(message(bytes(SEGMENT - 7 - EMPTY)), 0)
    with pytest.raises(ValueError, match="do not fit in a segment"):
        appender.append_records(block([500, 500]), np.arange(2), one_segment=True)
    with pytest.raises(ValueError, match="do not fit in a segment"):
        appender.append_records(block([SEGMENT, 1]), np.arange(2))
    with pytest.raises(ValueError, match="1 queue offsets for 2 records"):
        appender.append_records(block([1, 1]), np.arange(1))
    assert data(queue) == before


def test_after_a_segment_could_not_be_made_the_next_append_makes_it(queue):
    appender = CommitLogAppender(queue, Clock())
    appender.append(message(bytes(900)), 0)
    (directory,) = queue.directories
    Path(directory, f"{SEGMENT:020d}").touch()
    with pytest.raises(SegmentNotMadeError, match="File exists"):
        appender.append(message(bytes(200)), 1)
    with pytest.raises(SegmentNotMadeError, match="File exists"):
        appender.append_records(block([200]), np.ones(1, np.int64))
    assert appender.begin_time_in_lock == 0
    Path(directory, f"{SEGMENT:020d}").unlink()
    assert appender.append(message(bytes(200)), 1).commit_log_offset == SEGMENT


@pytest.mark.parametrize("as_block", [False, True])
def test_while_an_append_goes_on_one_can_see_since_when(queue, monkeypatch, as_block):
    appender, seen = CommitLogAppender(queue, Clock(7)), []
    monkeypatch.setattr(queue, "writable_file", lambda _: seen.append(appender.begin_time_in_lock))
    append = appender.append_records if as_block else appender.append
    what = (block([1]), np.zeros(1, np.int64)) if as_block else (message(), 0)
    with pytest.raises(AttributeError):  # no segment came
        append(*what)
    assert (seen[0], appender.begin_time_in_lock) == (7, 0)


def test_threads_append_whole_records_in_the_order_of_time(queue):
    ticks = itertools.count()
    appender = CommitLogAppender(queue, lambda: next(ticks))

    def put(number):
        for i in range(50):
            appender.append(message(bytes([number]) * 10), i)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log, at, seen = data(queue), 0, []
    size, per_segment = EMPTY + 10, (SEGMENT - 8) // (EMPTY + 10)
    for n in range(200):
        at = n // per_segment * SEGMENT + n % per_segment * size
        seen.append(decode_message(log, at, at, "", check_crc=True))
    assert [r.store_timestamp for r in seen] == list(range(200))
    assert sorted((r.body[0], r.queue_offset) for r in seen) == [
        (number, i) for number in range(1, 5) for i in range(50)
    ]


def host_bytes(host):
    return ipaddress.ip_address(host["ip"]).packed + host["port"].to_bytes(4, "big")


def fields_of(line):
    """Return a producer's message for a line of messages.jsonl."""
    return {
        "topic": line["topic"].encode(),
        "body": base64.b64decode(line["body_raw_b64"]),
        "properties_raw": base64.b64decode(line["properties_raw_b64"]),
        "born_host": host_bytes(line["born_host"]),
        "store_host": host_bytes(line["store_host"]),
        **{name: line[name] for name in PRODUCER_NUMBERS},
    }


def put_together(line):
    return line["topic"] == BATCH_TOPIC, line["queue_id"], line["store_timestamp"]


def encoded(lines, property_crc):
    rows = [fields_of(line) for line in lines]
    types = {"bytes": pa.binary(), "int": pa.int64()}
    columns = {n: pa.array([r[n] for r in rows], types[type(rows[0][n]).__name__]) for n in rows[0]}
    return encode_records(pa.record_batch(columns), store_host=HOST, property_crc=property_crc)


def new_log(store, directory):
    size = store.config["store"]["mappedFileSizeCommitLog"]
    dirs = [str(directory / name) for name in store.config["commitlog_dirs"]]
    queue = MappedFileQueue(dirs, size, option=OPTION)
    first = store.meta["min_phy_offset"]
    queue.writable_file(first)
    return queue


def assert_same_segments(store, queue, directory):
    expected = {
        str(path.relative_to(store.root)): path.read_bytes()
        for path in store.root.rglob("*")
        if path.parent.name == "commitlog" and path.is_file()
    }
    found = {str(Path(f.path).relative_to(directory)) for f in queue.mapped_files}
    assert found == set(expected)
    for relative, content in expected.items():
        same = (directory / relative).read_bytes() == content
        assert same, relative
    assert queue.max_offset == store.meta["max_phy_offset"]


@pytest.mark.parametrize("name", GOLDEN)
def test_blocks_give_rocketmqs_segments(name, tmp_path):
    store, clock = golden(name), Clock()
    queue = new_log(store, tmp_path)
    appender = CommitLogAppender(queue, clock)
    crc = store.config["store"]["enabledAppendPropCRC"]

    for _, group in itertools.groupby(store.dump("messages"), put_together):
        lines = list(group)
        records, first = encoded(lines, crc), 0
        clock.now = lines[0]["store_timestamp"]
        offsets = np.array([line["queue_offset"] for line in lines])
        is_batch = lines[0]["topic"] == BATCH_TOPIC
        while first < len(lines):
            part = appender.append_records(records, offsets, first=first, one_segment=is_batch)
            expected = [line["commit_log_offset"] for line in lines[first : part.stop]]
            assert part.commit_log_offsets.tolist() == expected
            first = part.stop
    assert_same_segments(store, queue, tmp_path)
    queue.close()


@pytest.mark.parametrize("name", WITHOUT_BATCHES)
def test_single_records_give_rocketmqs_segments(name, tmp_path):
    store, clock = golden(name), Clock()
    queue = new_log(store, tmp_path)
    appender = CommitLogAppender(queue, clock)
    for line in store.dump("messages"):
        clock.now = line["store_timestamp"]
        appended = appender.append(message(**fields_of(line)), line["queue_offset"])
        assert appended == (line["commit_log_offset"], line["store_size"], clock.now)
    assert_same_segments(store, queue, tmp_path)
    queue.close()
