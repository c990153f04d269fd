# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from store_core.layout import BATCH_CQ_UNIT
from tests.store_core.queue.queue_writers import open_batch_writer, state
from tests.store_core.queue.test_batch_consume_queue_writer import batches

FILE_SIZE = 3 * BATCH_CQ_UNIT.size


def opened(root, *, trusted=True):
    return open_batch_writer(root / "batchconsumequeue" / "T" / "0", FILE_SIZE, trusted=trusted)


def bases(queue):
    return queue.read_units()["base_queue_offset"].tolist()


def last_end(requests):
    return int(requests.commit_log_offset[-1] + requests.message_size[-1])


def test_what_is_appended_is_read_at_once(tmp_path):
    queue = opened(tmp_path)
    assert state(queue) == (-1, 0, -1)
    rows = batches([2, 3, 1, 4, 5])
    queue.append(rows)
    assert state(queue) == (0, 15, last_end(rows))
    assert bases(queue) == [0, 2, 5, 6, 10]
    for trusted in (True, False):
        again = opened(tmp_path, trusted=trusted)
        assert state(again) == state(queue)
        assert bases(again) == bases(queue)
    assert queue.append(rows).known == 5


@pytest.mark.parametrize("kept", range(6))
def test_what_is_cut_off_becomes_zeros(tmp_path, kept):
    rows = batches([2, 3, 1, 4, 5])
    queue = opened(tmp_path)
    queue.append(rows)
    limit = int(rows.commit_log_offset[kept]) if kept < 5 else last_end(rows)
    assert queue.end_below(limit) == kept
    assert queue.truncate(kept) == (kept < 5)
    assert bases(queue) == [0, 2, 5, 6, 10][:kept]
    assert bases(opened(tmp_path)) == bases(queue)
    data = b"".join(p.read_bytes() for p in sorted((tmp_path / "batchconsumequeue/T/0").iterdir()))
    assert not data[kept * 46 :].strip(b"\0")
    queue.append(rows)
    assert bases(queue) == [0, 2, 5, 6, 10]


def test_units_out_of_order_end_a_queue_after_a_crash(tmp_path):
    queue = opened(tmp_path)
    queue.append(batches([2, 3, 1, 4, 5]))
    path = tmp_path / "batchconsumequeue/T/0" / f"{FILE_SIZE:020d}"
    with path.open("rb+") as file:  # the fourth unit's base, as if its bytes had been lost
        file.seek(BATCH_CQ_UNIT.at("base_queue_offset"))
        file.write(bytes(8))
    assert opened(tmp_path, trusted=False).max_offset == 6


@pytest.mark.parametrize("name", ["message_size", "batch_size", "store_timestamp"])
def test_a_unit_that_lost_bytes_is_made_anew(tmp_path, name):
    rows = batches([2, 3, 0x0102, 4, 5])
    rows.message_size[:] = 0x0102
    rows.store_timestamp[:] = 0x0102
    rows.commit_log_offset[:] = np.arange(5) * 0x0102
    queue = opened(tmp_path)
    queue.append(rows)
    whole = queue.read_units().tolist()
    path = tmp_path / "batchconsumequeue/T/0" / f"{0:020d}"
    with path.open("rb+") as file:  # the third unit's
        end = BATCH_CQ_UNIT.at(name) + BATCH_CQ_UNIT.dtype[name].itemsize
        file.seek(2 * BATCH_CQ_UNIT.size + end - 1)
        file.write(b"\0")
    queue = opened(tmp_path, trusted=False)
    cut = queue.cut_torn(rows)
    assert cut == len(whole) - 2 or queue.max_offset == 5
    queue.append(rows)
    assert queue.read_units().tolist() == whole
    assert queue.cut_torn(rows) == 0


def test_expiry_deletes_whole_files_and_moves_the_minimum(tmp_path):
    rows = batches([2, 3, 1, 4, 5, 1, 1])
    queue = opened(tmp_path)
    queue.append(rows)
    assert queue.delete_expired(int(rows.commit_log_offset[1])) == 0
    assert queue.min_offset == 2
    assert queue.delete_expired(int(rows.commit_log_offset[4])) == 1
    assert state(queue) == (10, 17, last_end(rows))
    assert bases(queue) == [6, 10, 15, 16]
    assert queue.delete_expired(1 << 40) == 1
    assert queue.min_offset == queue.max_offset == 17
    queue.destroy()
    assert state(opened(tmp_path)) == (-1, 0, -1)
