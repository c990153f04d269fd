from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from store_core.config.config_files import static_topics, warn_of_static_topics
from store_core.errors import NOT_DAMAGE
from store_core.files.store_directory import StoreDirectory

# One of two brokers of a topic of four queues, as TopicQueueMappingManager of 5.3.3 writes it.
DETAIL = {
    "bname": "broker-a",
    "currIdMap": {"0": 0, "1": 1},
    "dirty": False,
    "epoch": 1795792000000,
    "hostedQueues": {
        "0": [{"bname": "broker-a", "endOffset": -1, "gen": 0, "logicOffset": 0, "queueId": 0}],
        "1": [{"bname": "broker-a", "endOffset": -1, "gen": 0, "logicOffset": 500, "queueId": 1}],
    },
    "scope": "__global__",
    "topic": "orders",
    "totalQueues": 4,
}


def directory_with(tmp_path: Path, topics: dict[str, object]) -> StoreDirectory:
    (tmp_path / "config").mkdir()
    content = {"dataVersion": {"counter": 1}, "topicQueueMappingInfoMap": topics}
    (tmp_path / "config" / "topicQueueMapping.json").write_text(json.dumps(content))
    return StoreDirectory(str(tmp_path))


def test_static_topics_are_named_once_and_are_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = directory_with(tmp_path, {"orders": DETAIL, "bills": {**DETAIL, "topic": "bills"}})
    assert static_topics(directory) == ("bills", "orders")
    warn_of_static_topics(directory)
    (record,) = caplog.records
    assert "static topics (bills, orders): consumers see logical offsets" in record.getMessage()
    assert hasattr(record, NOT_DAMAGE)


def test_a_broker_without_static_topics_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    warn_of_static_topics(directory_with(tmp_path, {}))
    warn_of_static_topics(StoreDirectory(str(tmp_path / "none")))
    assert caplog.records == []
