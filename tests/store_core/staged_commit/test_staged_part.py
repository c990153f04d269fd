from __future__ import annotations

import os
import pickle
import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from store_core.errors import StoreFormatError, StoreReadError, StoreWriteError
from store_core.staged_commit import staged_part, staged_part_writer
from store_core.staged_commit.staged_part import QueueCount, check_staged_files, read_blocks
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
    with pytest.raises(StoreWriteError, match="has 10 bytes, the task staged"):
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


@pytest.mark.parametrize("at", [-200, -9])
def test_rows_that_changed_since_are_refused(part, at):
    path = Path(part.rows_path)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreFormatError, match="other bytes than it was given") as raised:
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
