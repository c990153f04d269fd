"""A process that starts slaves: ``python -m tests.store_core.ha.killed_slave``; they die."""

from __future__ import annotations

import os
import random
import sys
import time

from store_core.ha.ha_client import HAClient
from store_core.message_store import MessageStore
from tests.store_core.crash.killed_writer import Death, serve
from tests.store_core.ha.stores import store_config


def follow(root: str, address: str, seed: int, die_after: int, until: int) -> None:
    """Follow a master until the log has reached an offset, or death comes."""
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
