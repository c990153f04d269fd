# SPDX-License-Identifier: Apache-2.0
"""Index and queues of a store are rebuilt, even while it is in use."""

from __future__ import annotations

import threading

import pytest

from store_core import MessageStore, StoreClosedError, StoreConfigError
from tests.store_core.crash.judge import judge
from tests.store_core.crash.messages import config_of
from tests.store_core.whole_store import EVER, put, statuses


def test_index_is_rebuilt_while_the_store_is_used(root):
    config = config_of(root)
    progress = []
    with MessageStore(config) as store:
        put(store, range(200))
        assert store.wait_for_dispatch()
        store.query_message("TopicA", "k0", 32, 0, EVER)  # has the files open
        stop = threading.Event()
        done = []

        def put_on():
            for number in range(200, 100_000):
                if stop.is_set():
                    return
                put(store, [number])
                done.append(number)

        thread = threading.Thread(target=put_on)
        thread.start()
        for _ in range(3):
            store.rebuild_index(lambda *seen: progress.append(seen))
            assert len(store.query_message("TopicA", "k100", 32, 0, EVER).messages) == 1
        stop.set()
        thread.join()
    assert progress[-1][0] == progress[-1][1] > 0
    everything = [*range(200), *done]
    judge(root, config, everything, everything)


def test_index_that_is_switched_off_is_not_rebuilt(root):
    with MessageStore(config_of(root, message_index_enable=False)) as store:
        put(store, range(3))
        with pytest.raises(StoreConfigError, match="messageIndexEnable"):
            store.rebuild_index()
    assert not (root / "index").exists()


@pytest.mark.parametrize("opened", ["started", "loaded", "closed"])
def test_queues_are_rebuilt_and_the_store_is_as_it_was(root, opened):
    with MessageStore(config_of(root)) as store:
        put(store, range(100))
    units = {path: path.read_bytes() for path in (root / "consumequeue").rglob("0" * 20)}
    for path in units:
        path.write_bytes(bytes(path.stat().st_size))
    if opened != "closed":
        store.load()
    if opened == "started":
        store.start()
    result = store.rebuild_consume_queue()
    assert result.result.units == 100
    if opened == "started":
        put(store, [100])
    elif opened == "loaded":
        assert store.max_phy_offset > 0
        assert statuses(store) == ["SERVICE_NOT_AVAILABLE"] * 3
    else:
        with pytest.raises(StoreClosedError):
            _ = store.max_phy_offset
    store.shutdown()
    numbers = range(101 if opened == "started" else 100)
    judge(root, store.config, numbers, numbers)
