# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pickle
import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import native
from store_core.errors import StoreFormatError, StoreReadError, StoreWriteError
from store_core.staged_commit import staged_part, staged_part_writer
from store_core.staged_commit import staged_part as module
from store_core.staged_commit.staged_part import (
    QueueCount,
    check_staged_files,
    checksum,
    file_checksum,
    read_blocks,
)
from store_core.staged_commit.staged_part_writer import is_on_this_machine
from store_core.staged_commit.staged_records import place
from tests.store_core.staged_commit.support import stage

BODIES = [b"%d" % i for i in range(50)]


@pytest.fixture
def part(tmp_path, monkeypatch):
    monkeypatch.setattr(staged_part_writer, "_ROWS_AT_ONCE", 13)
    directory = tmp_path / "_staging" / "j"
    directory.mkdir(parents=True)
    return stage(directory, 3, BODIES, queues=3, blocks=4)


def records_of(part):
    return Path(part.records_path(0))


def test_the_rows_tell_what_the_records_are(part):
    blocks = list(read_blocks(part))
    assert len(blocks) == 4
    queue = np.concatenate([b.queue for b in blocks])
    names = [part.queues[number][:2] for number in queue.tolist()]
    assert names == [("TopicA", i % 3) for i in range(50)]
    assert np.concatenate([b.rank for b in blocks]).tolist() == [i // 3 for i in range(50)]
    assert part.queues == tuple(QueueCount("TopicA", q, n) for q, n in ((0, 17), (1, 17), (2, 16)))
    assert sum(b.total_bytes for b in blocks) == records_of(part).stat().st_size
    assert set(np.concatenate([b.store_timestamp_at for b in blocks]).tolist()) == {56}
    assert pickle.loads(pickle.dumps(part)) == part
    check_staged_files(part)


def test_files_that_are_not_there_or_not_whole_are_named(part):
    os.truncate(records_of(part), 10)
    with pytest.raises(StoreWriteError, match="has 10 bytes, but the task staged"):
        check_staged_files(part)
    Path(part.rows_path).unlink()
    records_of(part).unlink()
    with pytest.raises(StoreWriteError, match="must share the store's file system"):
        check_staged_files(part)


def test_rows_that_are_not_those_of_the_part_are_refused(part):
    with pytest.raises(StoreFormatError, match="the task staged 51"):
        list(read_blocks(replace(part, messages=51)))
    with pytest.raises(StoreFormatError, match="did not name"):
        list(read_blocks(replace(part, queues=part.queues[:2])))
    data = Path(part.rows_path).read_bytes()
    Path(part.rows_path).write_bytes(data[: len(data) // 2])
    with pytest.raises(StoreFormatError):
        list(read_blocks(part))


@pytest.mark.parametrize("kernel", [native.built(), None], ids=["native", "numpy"])
def test_a_hash_that_no_key_has_is_refused(part, monkeypatch, kernel):
    monkeypatch.setattr(native, "kernel", kernel)
    with pa.ipc.open_stream(Path(part.rows_path).read_bytes()) as rows:
        table = rows.read_all()
    hashes = pa.array([[-1]] * len(table), table.schema.field("key_hashes").type)
    at = table.schema.get_field_index("key_hashes")
    table = table.set_column(at, table.schema.field(at), hashes)
    with pa.ipc.new_stream(part.rows_path, table.schema) as rows:
        rows.write_table(table)
    with pytest.raises(StoreFormatError, match="negative hash of a key"):
        list(read_blocks(part))


@pytest.mark.parametrize("at", [-200, -9])
def test_rows_that_changed_since_are_refused(part, at):
    path = Path(part.rows_path)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreFormatError, match="other bytes than were written") as raised:
        check_staged_files(part)
    assert raised.value.path == part.rows_path


def test_rows_that_cannot_be_read_are_named(part, monkeypatch):
    monkeypatch.setattr(staged_part, "file_checksum", Mock(side_effect=OSError(5, "defect")))
    with pytest.raises(StoreReadError, match=re.escape(part.rows_path)):
        check_staged_files(part)


def test_a_part_without_messages_has_no_files():
    from store_core.staged_commit.staged_part import StagedPart

    empty = StagedPart(
        partition_id=0,
        directory="/nowhere",
        name="",
        rows_bytes=0,
        rows_checksum=0,
        messages=0,
        chunks=(),
        queues=(),
    )
    check_staged_files(empty)
    assert list(read_blocks(empty)) == []


@pytest.fixture
def mounts(tmp_path, monkeypatch):
    """Return a function that sets the kinds of file system mounted at ``tmp_path``."""
    path = tmp_path / "mountinfo"
    monkeypatch.setattr(staged_part_writer, "_MOUNTS", str(path))
    device = tmp_path.stat().st_dev
    here = f"{os.major(device)}:{os.minor(device)}"

    def mount(*kinds):
        lines = [
            "22 28 0:20 / /proc rw,nosuid shared:5 - proc proc rw",
            *(f"28 1 {here} / /a\\040b rw,relatime master:1 - {kind} - rw" for kind in kinds),
        ]
        path.write_text("".join(line + "\n" for line in lines))

    return mount


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["ext4"], True),
        (["xfs", "xfs"], True),  # mounted twice, or a directory of it elsewhere
        (["nfs4"], False),
        (["fuse.s3fs"], False),
        (["virtiofs"], False),
        (["overlay"], False),
        (["ext4", "nfs4"], False),
        ([], False),
    ],
)
def test_only_what_nobody_else_has_mounted_is_of_this_machine(tmp_path, mounts, kinds, expected):
    mounts(*kinds)
    assert is_on_this_machine(str(tmp_path)) is expected


@pytest.mark.parametrize("text", [None, "", "nonsense\n", "1 2 x:y / / rw - ext4 - rw\n"])
def test_where_the_system_does_not_tell_nothing_is(tmp_path, monkeypatch, text):
    path = tmp_path / "mountinfo"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(staged_part_writer, "_MOUNTS", str(path))
    assert not is_on_this_machine(str(tmp_path))


def test_what_is_not_there_is_not(tmp_path):
    assert not is_on_this_machine(str(tmp_path / "none"))


@given(
    st.lists(st.integers(1, 40), max_size=40),
    st.integers(0, 200),
    st.sampled_from([48, 64, 100]),
    st.integers(0, 40),
)
def test_records_lie_where_one_by_one_appends_put_them(sizes, position, segment, cut):
    expected, at = [], position
    for size in sizes:
        if segment - at % segment < size + 8:
            at += segment - at % segment
        expected.append(at)
        at += size
    found = []
    for part in (sizes[:cut], sizes[cut:]):  # as blocks come, one after the other
        runs, position = place(np.array(part, np.int32), position, segment)
        for first, stop, offset in runs:
            ends = np.cumsum(part[first:stop]).tolist()
            found += [offset + end - size for end, size in zip(ends, part[first:stop])]
    assert (found, position) == (expected, at)


def test_a_record_that_fits_no_segment_is_refused():
    with pytest.raises(ValueError, match="57 bytes do not fit in a segment of 64"):
        place(np.array([3, 57], np.int32), 5, 64)


def plain(data):
    words = [data[at : at + 8].ljust(8, b"\0") for at in range(0, len(data), 8)]
    return sum(int.from_bytes(word, "little") for word in words) % 2**64


@given(st.binary(max_size=40), st.integers(0, 7))
def test_it_is_a_sum_of_words_wherever_they_lie(data, shift):
    moved = np.frombuffer(bytes(shift) + data, np.uint8)[shift:]
    assert checksum(moved) == plain(data)


@pytest.mark.parametrize("length", [0, 1, 8, 63, 64, 65, 1000])
def test_that_of_a_file_is_that_of_its_bytes(tmp_path, monkeypatch, length):
    monkeypatch.setattr(module, "_READ_BYTES", 64)
    data = np.random.default_rng(length).integers(0, 256, length, dtype=np.uint8).tobytes()
    (tmp_path / "file").write_bytes(data)
    assert file_checksum(str(tmp_path / "file")) == plain(data)
