# SPDX-License-Identifier: Apache-2.0
"""Opening a store that was stopped cleanly reports queues that lost units since."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from store_core import Message, MessageStore, MessageStoreConfig
from store_core.files.store_directory import StoreDirectory
from store_core.log.commit_log import CommitLog
from store_core.queue.consume_queue_store import ConsumeQueueStore
from store_core.recovery.queue_repair import lost_queues
from tests.golden_store import GOLDEN_NAMES, golden

COUNT = 9


def filled(root: Path, last: str = "B") -> MessageStoreConfig:
    """Return the configuration of a store with queues A/0 and B/0; the last record is of one."""
    config = MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=320,
        message_index_enable=False,
    )
    with MessageStore(config) as store:
        for number in range(COUNT):
            for topic in sorted("AB", key=lambda name: name == last):
                store.put_message(Message(topic, b"%d" % number + bytes(600)))
    return config


def load(config: MessageStoreConfig):
    store = MessageStore(config)
    found = store.load()
    store.shutdown()
    return found


@pytest.mark.parametrize("lost", ["A", "B"])
def test_a_queue_whose_records_are_in_the_last_segment(tmp_path, lost, caplog):
    config = filled(tmp_path)
    assert load(config).queues_lost == ()
    shutil.rmtree(tmp_path / "consumequeue" / lost)
    assert load(config).queues_lost == ((lost, 0),)
    assert f"queue 0 of topic {lost} lacks units of messages" in caplog.text
    assert load(config).queues_lost == ((lost, 0),)  # until it is rebuilt


def test_a_queue_that_only_a_group_knows(tmp_path):
    config = filled(tmp_path)
    with MessageStore(config) as store:
        for _ in range(8):
            store.put_message(Message("C", bytes(600)))
    shutil.rmtree(tmp_path / "consumequeue" / "A")
    assert load(config).queues_lost == ()
    folder = tmp_path / "config"
    folder.mkdir(exist_ok=True)
    offsets = {"offsetTable": {"A@g": {"0": 7, "1": 0}}}
    (folder / "consumerOffset.json").write_text(json.dumps(offsets))
    assert load(config).queues_lost == (("A", 0),)
    topics = {"topicConfigTable": {"B": {"topicName": "B"}}}
    (folder / "topics.json").write_text(json.dumps(topics))
    assert load(config).queues_lost == ()  # the topic was deleted


def test_all_queues_come_back(tmp_path):
    config = filled(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    assert load(config).queues_lost == ()


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_no_golden_store_has_lost_one(name):
    directory = StoreDirectory(str(golden(name).root))
    config = MessageStoreConfig.from_properties(golden(name).config_properties)
    with closing(CommitLog(directory, config)) as log:
        queues = ConsumeQueueStore(directory.resolve(), config)
        queues.load()
        queues.recover(trusted=True)
        assert lost_queues(queues, log, (max(log.min_offset, 0), queues.dispatch_from)) == ()
