# SPDX-License-Identifier: Apache-2.0
"""Half records that a crash leaves in a slave are not taken for the master's."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from store_core.codec.record_frames import walk_records
from store_core.ha import end_comparison
from store_core.ha.end_comparison import end_of_common_records
from store_core.ha.ha_client import HAClient
from store_core.message import Message
from store_core.message_store import MessageStore
from tests.store_core.ha.raw_master import RawMaster
from tests.store_core.ha.stores import (
    SEGMENT,
    assert_clean,
    log_bytes,
    put,
    queues,
    store_config,
    wait_until,
)

FIRST = SEGMENT  # of the log


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A log of three messages that consist mostly of properties, and their ends."""
    root, ends = tmp_path_factory.mktemp("three") / "store", []
    with MessageStore(store_config(root)) as store:
        for number in range(3):
            properties = {"KEYS": f"k{number}", "ORIGIN": "o" * 60}
            store.put_message(Message(topic="T0", queue_id=0, body=b"b", properties=properties))
            ends.append(store.max_phy_offset)
    return log_bytes(root)[: ends[-1]], ends


@pytest.mark.parametrize("lacking", [1, 2, 30, 65, 80, 110, 150])
def test_a_kill_within_a_record(tmp_path, three, lacking):
    """The files at this moment: the state that a kill leaves."""
    log, ends = three
    config = store_config(tmp_path / "s", broker_role="SLAVE")
    master = RawMaster(log[:-lacking], SEGMENT, most=60)
    slave = MessageStore(config)
    with master, slave, HAClient(slave, master.address, first_offset=0) as client:
        wait_until(lambda: client.state().bytes_received == len(log) - lacking - 1)
        assert client.wait_for(ends[1], 10)
        shutil.copytree(tmp_path / "s", tmp_path / "killed")
    killed = store_config(tmp_path / "killed", broker_role="SLAVE")
    with MessageStore(killed) as slave, RawMaster(log, SEGMENT) as master:
        assert slave.max_phy_offset == ends[1]
        with HAClient(slave, master.address) as client:
            assert client.wait_for(ends[2], 10), client.state()
        assert log_bytes(tmp_path / "killed")[: len(log)] == log
    assert_clean(tmp_path / "killed", killed)
    assert not (tmp_path / "killed" / "_cut").exists()


@pytest.mark.parametrize("whole", [False, True])
def test_bytes_that_never_reached_the_disk(tmp_path, whole):
    """The power was lost: properties far before the end are zeros, which no checksum detects."""
    with MessageStore(store_config(tmp_path / "m")) as store:
        for number in range(300):
            properties = {"KEYS": f"k{number}", "ORIGIN": "o" * 400}
            store.put_message(Message(topic="T0", queue_id=0, body=b"b", properties=properties))
        end = store.max_phy_offset
    log = log_bytes(tmp_path / "m")[:end]
    assert end > 2 * SEGMENT
    config = store_config(tmp_path / "s", broker_role="SLAVE")
    with MessageStore(config) as slave:
        for at in range(0, end, SEGMENT):
            slave.append_to_commit_log(at, log[at : min(at + SEGMENT, end)])
        assert slave.wait_for_dispatch(10)
        shutil.copytree(tmp_path / "s", tmp_path / "lost")
    lost = store_config(tmp_path / "lost", broker_role="SLAVE")
    if not whole:
        with (tmp_path / "lost" / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(log.index(b"oooo", SEGMENT // 4))
            file.write(bytes(50))
    with MessageStore(lost) as slave, RawMaster(log, SEGMENT) as master:
        assert slave.max_phy_offset == end
        with HAClient(slave, master.address) as client:
            wait_until(lambda: client.failure or client.state().acked_offset == end, 20)
            assert client.failure is None
        assert log_bytes(tmp_path / "lost")[:end] == log
        assert slave.wait_for_dispatch(10)
        assert len(queues(slave)["T0", 0]) == 300
    assert_clean(tmp_path / "lost", lost)
    assert (tmp_path / "lost" / "_cut").exists() is not whole


def test_what_was_lost_is_no_reason_to_cut_another_log(tmp_path, written_log):
    """Bytes that are not zeros: the copy is of another master, crash or not."""
    other, at = bytearray(written_log), written_log.index(b"KEYS", 3000)
    other[at : at + 4] = b"SEYK"
    config = store_config(tmp_path / "s", broker_role="SLAVE")
    with MessageStore(config) as slave:
        slave.append_to_commit_log(0, other[:SEGMENT])
        shutil.copytree(tmp_path / "s", tmp_path / "killed")
    killed = store_config(tmp_path / "killed", broker_role="SLAVE")
    master = RawMaster(written_log, SEGMENT)
    with MessageStore(killed) as slave, master, HAClient(slave, master.address) as client:
        wait_until(lambda: client.failure)
        assert "has different bytes at offset" in str(client.failure)
    assert not (tmp_path / "killed" / "_cut").exists()


# The end of the last record that two logs have in common.


def records(log):
    """Return starts and ends of all records; a blank record reaches to its segment's end."""
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
