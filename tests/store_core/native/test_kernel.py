# SPDX-License-Identifier: Apache-2.0
"""The kernel gives what NumPy gives, whatever it is given, and refuses what is out of bounds."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import native
from store_core.arrow import binary_parts
from store_core.codec.crc32 import crc32_ranges, crc_failures
from store_core.codec.java_string import decode_utf8, string_hash
from store_core.codec.message_batch_codec import MessageColumns, message_schema
from store_core.codec.message_codec import string_to_properties
from store_core.codec.property_columns import have_value, named_values, properties_block
from store_core.codec.record_encoder import encode_records
from store_core.codec.record_frames import (
    FrameConditions,
    KnownFrames,
    RecordFrames,
    matching,
    walk_records,
)
from store_core.index.index_entries import index_entries
from store_core.index.index_writer import EMPTY_HEADER, IndexFileWriter
from store_core.layout import INDEX_ENTRY
from store_core.native import record_columns
from store_core.native.dispatch_columns import dispatch_columns, encoded_dispatch_columns
from store_core.queue.dispatch_request import DispatchDecoder
from tests.both_paths import KERNEL, by_both, needs_kernel, running
from tests.examples import examples
from tests.layout_header import HEADER, layout_header
from tests.store_core.codec.record_strategies import (
    place_records,
    property_bytes,
    record_lists,
)

NAMES = message_schema().names
DATA, EMPTY = np.zeros(200, np.uint8), np.empty(0, np.int64)


def frames_of(data, base, positions):
    numpy, kernel = by_both(lambda: RecordFrames(data, base, positions))
    assert kernel.ok.tolist() == numpy.ok.tolist()
    assert kernel.parts[:, numpy.ok].tolist() == numpy.parts[:, numpy.ok].tolist()
    for field in KERNEL.HEADER_FIELDS:
        one, other = by_both(lambda field=field: RecordFrames(data, base, positions).column(field))
        assert (one.dtype, one.tolist()) == (other.dtype, other.tolist()), field
    rows = np.flatnonzero(numpy.ok)
    return numpy.take(rows), kernel.take(rows)


def assert_equal_columns(numpy_frames, kernel_frames, names=NAMES, **options):
    with running(None):
        expected = MessageColumns(numpy_frames, **options)
        columns = expected.columns(names)
        failures = crc_failures(numpy_frames)
    with running(KERNEL):
        decoded = MessageColumns(kernel_frames, **options)
        found = decoded.columns(names)
        assert crc_failures(kernel_frames) == failures
    for name in names:
        found[name].validate(full=True)
        assert found[name].type == columns[name].type
        assert found[name].equals(columns[name]), name
    assert decoded.bad_bodies == expected.bad_bodies


@needs_kernel
@settings(max_examples=examples(200), deadline=None)
@given(record_lists, st.lists(st.sampled_from(NAMES), unique=True), st.booleans())
def test_any_records_give_the_same_columns(placed, names, raw_body):
    data, positions, records = placed
    base = records[0].commit_log_offset if records else 0
    assert_equal_columns(*frames_of(data, base, positions), names=names, raw_body=raw_body)


@needs_kernel
@settings(max_examples=examples(300), deadline=None)
@given(record_lists, st.data())
def test_damaged_records_give_the_same_frames(placed, drawn):
    data, positions, records = placed
    base = records[0].commit_log_offset if records else 0
    damaged = data.copy()
    for _ in range(drawn.draw(st.integers(1, 4)) if len(data) else 0):
        at = drawn.draw(st.integers(0, len(data) - 1))
        damaged[at] = drawn.draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
    damaged = damaged[: drawn.draw(st.integers(0, len(data)))]
    positions = positions[positions < len(damaged)]
    bounds = drawn.draw(
        st.tuples(st.integers(0, len(data)), st.integers(1, 9), st.integers(1, 999))
    )
    numpy, kernel = by_both(lambda: walk_records(damaged, 0, *bounds))
    assert (kernel.starts.tolist(), *kernel[1:]) == (numpy.starts.tolist(), *numpy[1:])
    assert_equal_columns(*frames_of(damaged, base, positions))
    assert_equal_columns(*frames_of(damaged, base + positions - positions, positions))


@needs_kernel
@settings(max_examples=examples(100), deadline=None)
@given(record_lists, st.sampled_from(["TAGS", "keys", "properties", "topic", "a", "ü", "", "n7"]))
def test_any_property_has_the_same_values(placed, name):
    data, positions, records = placed
    base = records[0].commit_log_offset if records else 0
    frames = RecordFrames(data, base, positions)
    read = by_both(lambda: MessageColumns(frames).property_values(name))
    assert read[0].equals(read[1])
    holds = by_both(lambda: MessageColumns(frames).has_property(name))
    assert holds[0] == holds[1] == (read[0].null_count < len(records))


WANTED = ["KEYS", "a", "ab", "ü", "INNER_BASE", "none", ""]


@needs_kernel
@settings(max_examples=examples(200), deadline=None)
@given(st.lists(property_bytes, max_size=9), st.binary(max_size=70), st.sampled_from(WANTED))
def test_any_property_strings_have_the_same_values(texts, after, first):
    """The bytes after the last string decide how far the kernel may read at a time."""
    data = np.frombuffer(b"".join(texts) + after, np.uint8)
    length = np.array([len(text) for text in texts], np.int64)
    start = np.cumsum(length) - length
    names = [first, *(name for name in WANTED if name != first)]
    numpy, kernel = by_both(lambda: named_values(data, start, length, names))
    assert list(kernel) == list(numpy) == names
    for name in names:
        kernel[name].validate(full=True)
        assert kernel[name].equals(numpy[name]), name
    expected = [string_to_properties(text).get(first) for text in texts]
    assert kernel[first].to_pylist() == expected


@needs_kernel
@settings(max_examples=examples(200), deadline=None)
@given(st.lists(property_bytes, max_size=9), st.sampled_from(WANTED), st.data())
def test_any_texts_are_found_among_the_values(texts, name, drawn):
    data, length = np.frombuffer(b"".join(texts), np.uint8), np.array(list(map(len, texts)), int)
    values = [string_to_properties(text).get(name) for text in texts]
    some = [value for value in values if value is not None] + ["v", "k1 k2"]
    asked = drawn.draw(st.lists(st.sampled_from(some), unique=True))
    found = have_value(data, np.cumsum(length) - length, length, name, asked)
    if any("\ufffd" in text for text in asked):
        assert found is None
    else:
        assert found.tolist() == [value in asked for value in values]


number = st.sampled_from([-(2**63), -(2**31), -1, 0, 1, 7, 2**31, 2**63 - 1]) | st.integers(-9, 99)


@needs_kernel
@settings(max_examples=examples(300), deadline=None)
@given(
    record_lists,
    st.sampled_from([0, 4, 8, 12, 16, 32]),
    st.dictionaries(st.sampled_from(native.built().HEADER_FIELDS if KERNEL else "-"), number),
    st.data(),
)
def test_any_conditions_select_the_same_records(placed, flags, least, drawn):
    data, positions, records = placed
    base = records[0].commit_log_offset if records else 0
    frames = RecordFrames(data, base, positions)
    values = {field: [*frames.column(field).tolist(), low] for field, low in least.items()}
    ranges = {
        field: (drawn.draw(st.sampled_from(known)), drawn.draw(st.sampled_from(known) | number))
        for field, known in values.items()
    }
    names = st.frozensets(st.sampled_from([b"T", *(record.topic_bytes for record in records)]))
    topics = drawn.draw(st.none() | names)
    wanted = FrameConditions(flags, ranges, topics)
    numpy, kernel = by_both(lambda: matching(frames, wanted))
    expected = [
        not record.sys_flag & flags
        and all(low <= column(frames, field, row) <= high for field, (low, high) in ranges.items())
        and (topics is None or record.topic_bytes in topics)
        for row, record in enumerate(records)
    ]
    assert kernel.tolist() == numpy.tolist() == expected


def column(frames, field, row):
    return int(frames.column(field)[row])


@needs_kernel
@settings(max_examples=examples(100), deadline=None)
@given(record_lists)
def test_columns_before_the_append_are_those_of_the_log(placed):
    data, positions, records = placed
    base = records[0].commit_log_offset if records else 0
    frames = RecordFrames(data, base, positions)
    with running(KERNEL):
        stored = dispatch_columns(frames.data, frames.position, frames.parts)
        properties = pa.array([record.properties_raw for record in records], pa.binary())
        hashes = [string_hash(decode_utf8(topic)) for topic in stored.topics]
        found = encoded_dispatch_columns(
            binary_parts(properties),
            stored.topic_code,
            stored.topics,
            np.array(hashes, np.int64).astype(np.uint32),
            frames.column("sys_flag"),
        )
    is_good = [is_text(record.topic_bytes) for record in records]
    for row in np.flatnonzero(is_good).tolist():
        expected, own = stored.rows(row, row + 1), found.rows(row, row + 1)
        assert [list(column) for column in own] == [list(column) for column in expected]


def is_text(topic):
    return len(topic) < 256 and decode_utf8(topic).encode() == topic


@needs_kernel
@settings(max_examples=examples(200), deadline=None)
@given(record_lists, st.booleans(), st.sampled_from([0, 1, 60]))
def test_any_records_are_dispatched_the_same(placed, with_tags, repeats):
    data, positions, records = placed
    base = records[0].commit_log_offset if records else 0
    frames = RecordFrames(data, base, positions)
    rows = np.repeat(np.arange(len(records)), repeats)  # few and many rows go different ways

    def dispatched():
        columns = MessageColumns(frames.take(rows))
        requests = DispatchDecoder([1000, 5000]).decode_columns(columns)
        entries = index_entries(columns, with_tags=with_tags)
        return [values(part) for part in (*vars(requests).values(), *entries)]

    numpy, kernel = by_both(dispatched)
    assert kernel == numpy


def values(part):
    return (part.dtype, part.tolist()) if isinstance(part, np.ndarray) else part


@needs_kernel
@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.integers(-3, 60), min_size=1, max_size=9),
    st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 9), min_size=1, max_size=40),
    st.integers(1, 50),
)
def test_any_slots_are_linked_the_same(slots, hashes, number):
    file = object.__new__(IndexFileWriter)
    file.header = EMPTY_HEADER._replace(index_count=number, begin_timestamp=5000)
    key_hash, count = np.array(hashes, np.int32), len(hashes)
    offsets, times = np.arange(count) + 2**40, np.arange(count) * 1700
    results = []
    for link in (IndexFileWriter._link, IndexFileWriter._link_natively):
        file._slots = np.array(slots, ">i4")
        entries = np.zeros(count, INDEX_ENTRY.dtype)
        slot, held = np.full(count, -1), np.empty(count, ">i4")
        used = link(file, entries, slot, held, key_hash, offsets, times)
        linked = file._slots.tolist()
        file._slots[slot[::-1]] = held[::-1]
        assert file._slots.tolist() == slots
        results.append((used, linked, entries.tolist(), slot.tolist()))
    assert results[0] == results[1]


@needs_kernel
@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=400), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400))))
def test_checksums_are_the_same(text, ranges):
    data = np.frombuffer(text, np.uint8)
    pairs = [(min(a, len(data)), min(a + n, len(data))) for a, n in ranges]
    starts, ends = np.array(pairs, np.int64).reshape(-1, 2).T
    numpy, kernel = by_both(lambda: crc32_ranges(data, starts, ends))
    assert (kernel.dtype, kernel.tolist()) == (numpy.dtype, numpy.tolist())


@needs_kernel
def test_a_golden_store_gives_the_same(golden_store):
    names = golden_store.config.get("commitlog_dirs", ["commitlog"])
    logs = [golden_store.root / name for name in names]
    for path in sorted(path for log in logs for path in log.iterdir()):
        data = np.fromfile(path, np.uint8)
        numpy, kernel = by_both(lambda data=data: walk_records(data, 0, len(data), 9999, len(data)))
        assert (kernel.starts.tolist(), *kernel[1:]) == (numpy.starts.tolist(), *numpy[1:])
        assert_equal_columns(*frames_of(data, int(path.name), kernel.starts))


FIELDS = {
    "topic": b"T", "body": b"b", "queue_offset": 0, "queue_id": 0, "born_timestamp": 1,
    "born_host": bytes(8), "store_timestamp": 2, "store_host": bytes(8),
}  # fmt: skip
MANY = b"".join(b"n%d\1v\2" % i for i in range(300))


texts = st.none() | st.text("kü 😀#", max_size=9).map(str.encode) | st.binary(max_size=9)
known_rows = st.tuples(st.integers(0, 2), st.sampled_from([0, 4, 8, 12]), texts, texts, texts)


def strings_of(values, skipped):
    """Return bytes as a column of strings, which Arrow does not check, and some rows less."""
    column = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(column), column.buffers()).slice(skipped)


@needs_kernel
@settings(max_examples=examples(200), deadline=None)
@given(st.lists(known_rows, max_size=9), st.integers(0, 2), st.sets(st.integers(2, 4)))
def test_any_known_columns_are_dispatched_the_same(rows, skipped, present):
    count = max(len(rows) - skipped, 0)
    numbers = np.array([row[:2] for row in rows], np.int32).reshape(-1, 2)[skipped:]
    fields = {
        name: np.arange(count, dtype=np.int64)
        for name in ("commit_log_offset", "queue_offset", "store_timestamp")
    }
    frames = KnownFrames(
        {
            **fields,
            "total_size": np.full(count, 91, np.int32),
            "queue_id": np.zeros(count, np.int32),
            "sys_flag": np.ascontiguousarray(numbers[:, 1]),
        }
    )
    names = {2: "UNIQ_KEY", 3: "KEYS", 4: "TAGS"}
    known = {
        names[at]: strings_of([row[at] or None for row in rows], skipped) for at in sorted(present)
    }
    topics = pa.DictionaryArray.from_arrays(
        pa.array(numbers[:, 0].copy()), [b"T", b"\xff", b"\xc3\xbc"]
    )

    def dispatched():
        columns = MessageColumns(frames, known_properties=known, known_topics=topics)
        entries = index_entries(columns, with_tags=True)
        requests = DispatchDecoder([1000]).decode_columns(columns)
        return [values(part) for part in (*vars(requests).values(), *entries)]

    numpy, kernel = by_both(dispatched)
    assert numpy == kernel


@needs_kernel
@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.lists(texts, min_size=3, max_size=3), min_size=1, max_size=9), st.integers(0, 2))
def test_any_properties_are_joined_the_same(rows, skipped):
    columns = [strings_of(list(values), skipped) for values in zip(*rows)]
    named = dict(zip(("KEYS", "a", "UNIQ_KEY"), columns))
    numpy, kernel = by_both(lambda: properties_block(None, named))
    assert numpy.equals(kernel)
    kernel.validate(full=True)


def test_more_names_than_the_kernel_takes_are_joined():
    named = {f"n{number}": pa.array([None, "x"]) for number in range(8)}
    numpy, kernel = by_both(lambda: properties_block(None, named).to_pylist())
    assert numpy == kernel == [b"", b"".join(b"n%d\1x\2" % number for number in range(8))]


longs = st.integers(-(2**63), 2**63 - 1)


@needs_kernel
@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(longs, longs, longs), min_size=3, max_size=3), st.booleans(), st.booleans()
)
def test_any_offsets_are_patched_the_same(rows, is_wide, is_one_time):
    queue_offset, offset, time = np.array(rows, np.int64).T[:, 1:]
    host = bytes(20 if is_wide else 8)
    batch = pa.record_batch(
        {name: pa.array([b"x"] * 3) for name in ("topic", "body", "properties_raw")}
    )

    def patched():
        records = encode_records(batch, store_host=host, property_crc=True)
        records.patch(queue_offset, offset, int(time[0]) if is_one_time else time, first=1)
        return records.block.tobytes()

    numpy, kernel = by_both(patched)
    assert numpy == kernel


@needs_kernel
def test_refused_rows_come_from_numpy_in_order():
    properties = [b"a\1b\2", b"a\1\xff\2", b"KEYS\1x y\2", MANY, b""]
    data, positions, _ = place_records([{**FIELDS, "properties_raw": p} for p in properties], 0)
    assert_equal_columns(*frames_of(data, 0, positions))
    with running(KERNEL):
        keys = MessageColumns(RecordFrames(data, 0, positions)).column("keys")
    assert keys.to_pylist() == [None, None, ["x", "y"], None, None]


ONE = np.zeros(1, np.int64)


def short(size):
    return bytearray(size - 8)


BIG = np.array([2**31], np.int64)
INTS = np.zeros(1, np.int32)
INTS2 = np.zeros(2, np.int32)
ENTRIES = np.zeros(2, np.int32)
TEXT = (np.array([0, 1], np.int32), DATA, None)
OUTSIDE = (np.array([0, 201], np.int32), DATA, None)
BACKWARDS = (np.array([1, 0], np.int32), DATA, None)
PARTS, OK = np.zeros((6, 1), np.int64), np.zeros(1, bool)
PAIR = np.array([0, 201], np.int32)
ROOM, NUMBERING = (INTS, INTS, OK), (INTS, INTS, PAIR)


def known_arguments(keys, entries):
    """Return arguments for one record with these keys, and room for these entries."""
    room = (entries, entries.copy(), np.zeros(len(entries), bool))
    return (INTS, INTS, None, None, None, *keys, None, None, None, INTS.copy(), OK.copy(), *room)


@needs_kernel
@pytest.mark.parametrize(
    ("function", "arguments", "error"),
    [
        ("crc32_ranges", (DATA, ONE, ONE + 201, np.zeros(1, np.uint32)), "range 0 is not inside"),
        ("crc32_ranges", (DATA, ONE - 1, ONE, np.zeros(1, np.uint32)), "range 0 is not inside"),
        ("crc32_ranges", (DATA, ONE + 1, ONE, np.zeros(1, np.uint32)), "range 0 is not inside"),
        (
            "crc32_ranges",
            (DATA, ONE, EMPTY, np.zeros(1, np.uint32)),
            "expected an array of 8 bytes",
        ),
        ("crc32_ranges", (DATA, ONE, ONE, np.zeros(2, np.uint32)), "expected an array of 4 bytes"),
        ("walk_records", (DATA, -1, 9, 9, 9, ONE), "inside the data"),
        ("walk_records", (DATA, 0, 9, 9, -9, ONE), "inside the data"),
        (
            "place_records",
            (DATA, 0, ONE, PARTS[:5], OK, INTS, INTS),
            "expected an array of 48 bytes",
        ),
        (
            "place_records",
            (DATA, EMPTY, ONE, PARTS, OK, INTS, INTS),
            "expected an array of 8 bytes",
        ),
        ("header_field", (DATA, ONE, 99, ONE), "no such field"),
        ("header_field", (DATA, ONE, 0, ONE), "expected an array of 4 bytes"),
        ("columns", (DATA, ONE - 1, PARTS, 1, (), bytearray), "not inside the data"),
        ("columns", (DATA, ONE, PARTS, 1, (), bytearray), "not inside the data"),
        ("columns", (DATA, ONE, PARTS + 2**62, 1, (), bytearray), "not inside the data"),
        ("columns", (DATA, ONE, PARTS + 201, 1, (), bytearray), "not inside the data"),
        ("columns", (DATA, EMPTY, EMPTY, 1, (b"a",) * 33, bytearray), "at most 32 names"),
        ("values", (DATA, ONE - 1, ONE, (), bytearray), "not inside the data"),
        ("values", (DATA, ONE + 201, ONE, (), bytearray), "not inside the data"),
        ("values", (DATA, ONE + 1, ONE + 200, (), bytearray), "not inside the data"),
        ("values", (DATA, ONE, ONE - 1, (), bytearray), "not inside the data"),
        ("values", (np.zeros(2**31, np.uint8), ONE, BIG, (), bytearray), "not inside the data"),
        ("values", (DATA, ONE, EMPTY, (), bytearray), "expected an array of 8 bytes"),
        ("values", (DATA, ONE, ONE, (b"a",) * 33, bytearray), "at most 32 names"),
        ("values", (DATA, ONE, ONE, (b"a",), short), "expected an array of"),
        ("select", (DATA, ONE - 1, PARTS, 0, EMPTY, (), OK), "not inside the data"),
        ("select", (DATA, EMPTY, EMPTY, 0, np.full(3, 99), (), OK[:0]), "a range is a field"),
        ("select", (DATA, EMPTY, EMPTY, 0, np.full(3, -1), (), OK[:0]), "a range is a field"),
        ("select", (DATA, EMPTY, EMPTY, 0, np.zeros(4, np.int64), (), OK[:0]), "a range is a"),
        ("select", (DATA, EMPTY, EMPTY, 0, EMPTY, (b"a",) * 33, OK[:0]), "at most 32 names"),
        ("select", (DATA, EMPTY, EMPTY, 0, EMPTY, (), OK), "expected an array of 0 bytes"),
        ("have_value", (DATA, ONE, ONE + 201, (b"a",), (), OK), "not inside the data"),
        ("have_value", (DATA, ONE, ONE, (), (), OK), "expected one name"),
        ("have_value", (DATA, ONE, ONE, (b"a",), (), OK[:0]), "expected an array of 1 bytes"),
        ("have_value", (DATA, ONE, ONE, (b"a",), (b"b",) * 33, OK), "at most 32 names"),
        ("dispatch_values", known_arguments(TEXT, ENTRIES[:0]), "row 0 is wrong"),
        ("dispatch_values", known_arguments(OUTSIDE, ENTRIES), "row 0 is wrong"),
        ("dispatch_values", known_arguments(BACKWARDS, ENTRIES), "row 0 is wrong"),
        (
            "dispatch_values",
            known_arguments((INTS, DATA, None), ENTRIES),
            "expected an array of 8 bytes",
        ),
        (
            "dispatch_values",
            known_arguments((*TEXT[:2], DATA), ENTRIES),
            "expected an array of 1 bytes",
        ),
        ("join_properties", ((b"a",), INTS2, DATA[:2], *TEXT), "row 0 is wrong"),
        ("join_properties", ((b"a",), INTS2, DATA[:9], *OUTSIDE), "row 0 is wrong"),
        ("join_properties", ((b"a",), INTS2, DATA[:9], *BACKWARDS), "row 0 is wrong"),
        ("join_properties", ((b"a",), EMPTY.view(np.int32), DATA, *TEXT), "no offsets"),
        ("join_properties", ((b"a",) * 8, INTS2, DATA, *TEXT), "at most 7 names"),
        ("join_properties", ((b"a", b"b"), INTS2, DATA, *TEXT), "three arguments for each"),
        ("patch", (DATA[:90], ONE, ONE, ONE, ONE, 5), "row 0 is not inside"),
        ("patch", (DATA[:91], ONE + 1, ONE, ONE, ONE, 5), "row 0 is not inside"),
        ("patch", (DATA[:91], ONE - 1, ONE, ONE, ONE, ONE), "row 0 is not inside"),
        ("patch", (DATA[:91], ONE, ONE + 84, ONE, ONE, ONE), "row 0 is not inside"),
        ("patch", (DATA[:91], ONE, ONE - 1, ONE, ONE, ONE), "row 0 is not inside"),
        ("patch", (DATA[:91], ONE, ONE, ONE, EMPTY, ONE), "expected an array of 8 bytes"),
        ("dispatch", (DATA, ONE, PARTS, INTS, OK, *ROOM, *NUMBERING, ONE), "not inside the data"),
        ("dispatch", (DATA, EMPTY, EMPTY, EMPTY, OK, *ROOM, *NUMBERING, ONE), "array of 0 bytes"),
        ("dispatch_properties", (PAIR, DATA, INTS, INTS, INTS, OK, *ROOM), "a row is not inside"),
        ("dispatch_properties", (INTS, DATA, INTS, INTS, INTS, OK, *ROOM), "array of 8 bytes"),
        ("dispatch_properties", (PAIR, DATA, INTS, EMPTY, INTS, OK, *ROOM), "array of 4 bytes"),
        ("link", (EMPTY, INTS, ONE, INTS, 1, np.zeros(20, np.uint8), ONE, INTS), "no slots"),
        (
            "link",
            (INTS, INTS - 1, ONE, INTS, 1, np.zeros(20, np.uint8), ONE, INTS),
            "negative hash",
        ),
        ("link", (INTS, INTS, ONE, INTS, 2**31 - 1, np.zeros(20, np.uint8), ONE, INTS), "31 bits"),
        ("link", (INTS, INTS, ONE, INTS, 0, np.zeros(20, np.uint8), ONE, INTS), "no slots"),
        ("link", (INTS, INTS, ONE, INTS, 1, np.zeros(19, np.uint8), ONE, INTS), "of 20 bytes"),
        ("columns", (DATA, EMPTY, EMPTY, 1, (), short), "expected an array of"),
    ],
)
def test_what_is_out_of_bounds_is_refused(function, arguments, error):
    with pytest.raises(ValueError, match=error):
        getattr(KERNEL, function)(*arguments)


@needs_kernel
def test_without_a_block_there_are_no_columns():
    assert KERNEL.values(DATA, ONE, ONE, (b"a",), lambda _: None) is None
    assert KERNEL.columns(DATA, EMPTY, EMPTY, 1, (), lambda _: None) is None
    with pytest.raises(KeyError):
        KERNEL.columns(DATA, EMPTY, EMPTY, 1, (), {}.__getitem__)


@needs_kernel
def test_numpy_makes_columns_that_would_take_too_much_room(monkeypatch):
    data, positions, _ = place_records([{**FIELDS, "properties_raw": b"a\1b\2"}], 0)
    expected = MessageColumns(RecordFrames(data, 0, positions)).columns(NAMES)
    monkeypatch.setattr(record_columns, "_MOST_MORE", -(2**40))
    columns = MessageColumns(RecordFrames(data, 0, positions))
    assert columns.columns(NAMES) == expected
    assert columns.property_values("a").to_pylist() == ["b"]


@needs_kernel
@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2), st.data())
def test_any_position_is_no_record(positions, drawn):
    at = np.array(positions, np.int64)
    base = drawn.draw(st.integers(-(2**63), 2**63 - 1))
    parts, ok = np.empty((6, 2), np.int64), np.ones(2, bool)
    KERNEL.place_records(DATA, base, at, parts, ok, *np.empty((2, 2), np.int32))
    assert not ok.any()
    KERNEL.header_field(DATA, at, 0, np.empty(2, np.int32))


def test_the_layout_is_the_declared_one():
    assert HEADER.read_text() == layout_header(), "run python -m tests.readme_tables"


@pytest.mark.parametrize(("switch", "path"), [("0", "NumPy"), ("1", None)])
def test_a_variable_switches_it_off(switch, path):
    code = "from store_core import native; print(native.path_name())"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, native.SWITCH: switch},
        capture_output=True,
        text=True,
        check=True,
    )
    built = "NumPy" if native.built() is None else "native kernel"
    assert ran.stdout.strip() == (path or built)
