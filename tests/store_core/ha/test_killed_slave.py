# SPDX-License-Identifier: Apache-2.0
"""A slave is killed, again and again: it has everything it reported, and goes on where it was."""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import pytest

from store_core.ha.ha_client import HAClient
from store_core.message_store import MessageStore
from tests.store_core.crash.killed_writer import Death, serve
from tests.store_core.ha.raw_master import RawMaster
from tests.store_core.ha.stores import (
    SEGMENT,
    assert_clean,
    log_bytes,
    record_ends,
    store_config,
)
from tests.store_core.test_killed_writer import Writers

KILLS = 20


@pytest.fixture(scope="module")
def slaves():
    made = Writers("tests.store_core.ha.test_killed_slave")
    yield made
    made.close()


def test_a_killed_slave_has_what_it_reported(tmp_path, slaves, written_log):
    rng, ends = random.Random(5), record_ends(written_log)
    config = store_config(tmp_path / "slave", broker_role="SLAVE")
    killed = 0
    with RawMaster(written_log, SEGMENT, most=3000) as master:
        while killed < KILLS:
            pieces = rng.choice([None, lambda data: [data[:700], data[700:]]])
            master.pieces = pieces
            task = {
                "root": str(tmp_path / "slave"),
                "address": master.address,
                "seed": rng.randrange(1 << 30),
                "die_after": rng.randrange(1, 150),
                "until": master.end,
            }
            status = slaves.run(task, None)
            assert status in {0, signal.SIGKILL}
            killed += status != 0
            reported = max((offset for offset in master.reports if offset <= master.end), default=0)
            with MessageStore(config) as store:
                end = store.max_phy_offset
                assert store.wait_for_dispatch(10)
            assert end >= ends[ends <= reported].max()
            assert end in ends
            if end:
                assert log_bytes(tmp_path / "slave")[:end] == written_log[:end]
                assert_clean(tmp_path / "slave", config)
            if status == 0:  # it had all: begin again
                assert end == master.end
                with MessageStore(config) as store:
                    store.destroy()
                with master._changed:
                    master.reports.clear()


# A process that starts slaves: ``python -m tests.store_core.ha.test_killed_slave``; they die.


def follow(root: str, address: str, seed: int, die_after: int, until: int) -> None:
    """Follow a master until the log has reached an offset, or the process is killed."""
    if die_after >= 0:
        Death(die_after, random.Random(seed)).install()
    store = MessageStore(store_config(root, broker_role="SLAVE"))
    with store, HAClient(store, address, first_offset=0) as client:
        assert client.wait_for(until, 60), client.state()
        while client.state().acked_offset < until:
            time.sleep(0.001)
    os._exit(0)


if __name__ == "__main__":
    serve(follow)
    sys.exit(0)
