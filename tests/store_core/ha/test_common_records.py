"""The end of the last record that two logs have in common."""

from __future__ import annotations

import numpy as np
import pytest

from store_core.codec.record_frames import walk_records
from store_core.ha import end_comparison
from store_core.ha.end_comparison import end_of_common_records
from store_core.message_store import MessageStore
from tests.store_core.ha.stores import SEGMENT, put, store_config

FIRST = SEGMENT  # of the log


def records(log):
    """Return starts and ends of all records; a blank record goes up to its segment's end."""
    found = []
    for segment in range(0, len(log), SEGMENT):
        data = np.frombuffer(log[segment : segment + SEGMENT], np.uint8)
        walk = walk_records(data, 0, len(data), 1 << 20, 1 << 30)
        starts = [*walk.starts, walk.stop]
        found += [(segment + int(a), segment + int(b)) for a, b in zip(starts, starts[1:])]
        if walk.blank:
            found.append((segment + walk.stop, segment + SEGMENT))
    return found


@pytest.mark.parametrize("rows", [3, 1 << 16])
def test_it_is_the_last_that_lies_between(slave, written_log, monkeypatch, rows):
    monkeypatch.setattr(end_comparison, "_ROWS", rows)
    for at in range(FIRST, len(written_log), SEGMENT):
        slave.append_to_commit_log(at, written_log[at : at + SEGMENT])
    known = [(start, end) for start, end in records(written_log) if start >= FIRST]
    for start in range(FIRST, len(written_log), 30_011):
        for stop in range(start + 1, len(written_log) + 1, 19_937):
            within = [end for begin, end in known if begin >= start and end <= stop]
            expected = max(within, default=None)
            assert end_of_common_records(slave, start, stop) == expected, (start, stop)


def test_the_end_of_a_segment(tmp_path):
    with MessageStore(store_config(tmp_path)) as store:
        put(store, 200)
        assert end_of_common_records(store, 1, SEGMENT) == SEGMENT
        last = end_of_common_records(store, 1, SEGMENT - 1)
        assert last < SEGMENT
        assert end_of_common_records(store, last - 1, last + 3) is None
