"""A Java broker filters by the bitmaps that this project wrote into extension units."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from store_core import Message, MessageStore, MessageStoreConfig, SqlFilter, StoreSnapshot
from store_core.config.consumer_filter_file import load_consumer_filters
from store_core.files.store_directory import StoreDirectory
from store_core.layout.consume_queue import CQ_EXT_UNIT, EXT_ADDRESS_BASE
from tests.interop import java_cluster
from tests.interop.java_cluster import Broker

pytestmark = pytest.mark.interop

TOPIC, GROUP = "events", "serve_push_0"
EXPRESSION = "n > 15"
MESSAGES, KNOWN_FROM, HIDDEN = 60, 30, 47
"""The group is registered before message 30; of message 47 its bits are erased."""


def settings_of(port: int) -> dict[str, Any]:
    return {
        "mappedFileSizeCommitLog": 65_536,
        "mappedFileSizeConsumeQueue": 800,
        "mappedFileSizeConsumeQueueExt": 4096,
        "maxHashSlotNum": 125,
        "maxIndexNum": 500,
        "enableConsumeQueueExt": "true",
        "enableCalcFilterBitMap": "true",
        "enablePropertyFilter": "true",
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
    }


def write(config: MessageStoreConfig) -> None:
    with MessageStore(config) as store:
        for number in range(MESSAGES):
            if number == KNOWN_FROM:
                assert store.wait_for_dispatch()
                filters = store.consumer_filters
                assert filters.register(TOPIC, GROUP, EXPRESSION, client_version=1)
                time.sleep(0.01)  # bitmaps speak of messages that are younger
            store.put_message(Message(TOPIC, b"", queue_id=0, properties={"n": str(number)}))
        assert store.wait_for_dispatch()


def hide(root: Path, number: int) -> None:
    """Erase the bitmap of a message that matches."""
    with StoreSnapshot(root) as snapshot:
        queue = snapshot.consume_queue(TOPIC, 0)
        assert queue is not None
        address = int(queue.read_units(number, number + 1)["tags_code"][0]) - EXT_ADDRESS_BASE
    files = sorted((root / "consumequeue_ext" / TOPIC / "0").iterdir())
    data = np.memmap(files[address // 4096], np.uint8, "r+")
    at = address % 4096 + CQ_EXT_UNIT.size
    assert data[at : at + 14].any()
    data[at : at + 14] = 0
    data.flush()


def test_a_broker_delivers_what_the_bitmaps_let_pass(tmp_path: Path) -> None:
    root = tmp_path / "store"
    settings = settings_of(java_cluster.free_port())
    texts = {key: str(value) for key, value in settings.items()}
    config = MessageStoreConfig.from_properties({**texts, "storePathRootDir": str(root)})
    write(config)
    hide(root, HIDDEN)
    (before,) = load_consumer_filters(StoreDirectory(str(root))) or ()
    wanted = [number for number in range(MESSAGES) if number > 15 and number != HIDDEN]
    options = {"topics": TOPIC, "push": f"{TOPIC}:sql:{EXPRESSION}={len(wanted)}"}
    with Broker(root, tmp_path / "served", "5.3.3", settings, options) as broker:
        served = broker.wait()
    assert served.ok, served.said
    pushed = [row for row in served.received if row["mode"] == "CLUSTERING"]
    assert sorted(int(row["properties"]["n"]) for row in pushed) == wanted
    (after,) = load_consumer_filters(StoreDirectory(str(root))) or ()
    assert (after.expression, after.bit_positions) == (EXPRESSION, before.bit_positions)
    assert after.born_timestamp == before.born_timestamp
    assert after.client_version > before.client_version
    with StoreSnapshot(root, config) as snapshot:
        pull = snapshot.get_message(GROUP, TOPIC, 0, 40, MESSAGES, SqlFilter(EXPRESSION))
    # Reads from here evaluate the expression on the properties: bitmaps may be of another one.
    assert [int(m.properties["n"]) for m in pull.messages] == [*range(40, MESSAGES)]
