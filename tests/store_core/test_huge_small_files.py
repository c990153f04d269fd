# SPDX-License-Identifier: Apache-2.0
"""Huge files in place of small ones: an error with file, size and limit, and no use of memory."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from store_core.config.config_files import (
    load_consumer_offsets,
    load_delay_offsets,
    load_subscription_groups,
    load_topics,
)
from store_core.config.config_writing import merge_topics
from store_core.config.message_store_config import MessageStoreConfig, load_broker_config
from store_core.errors import StoreFormatError, StoreReadError
from store_core.files.byte_source import SMALL_FILE_BYTES
from store_core.files.store_directory import StoreDirectory
from store_core.staged_commit.staging import read_json
from store_core.tools.repair.store_recovery import recover_store
from store_core.tools.salvage.salvage import SalvageOptions, salvage_store
from tests.golden_store import golden
from tests.store_core.tools.check.support import all_kinds, checked

HUGE = 200 << 30
LOADS = {
    "topics.json": load_topics,
    "consumerOffset.json": load_consumer_offsets,
    "lmqConsumerOffset.json": load_consumer_offsets,
    "delayOffset.json": load_delay_offsets,
    "subscriptionGroup.json": load_subscription_groups,
}


def grow(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.truncate(path, HUGE)  # a hole
    return path


@pytest.fixture
def root(tmp_path):
    return golden("onefile-5x").copy_to(tmp_path)


@pytest.mark.parametrize("name", LOADS)
def test_configuration(root, name, caplog):
    grow(root / "config" / name)
    assert not LOADS[name](StoreDirectory(str(root)))
    assert re.search(rf"{name}: {HUGE} bytes .* {SMALL_FILE_BYTES}", caplog.text)


def test_a_copy_takes_the_place_of_a_file_that_is_too_large(root):
    path = grow(root / "config" / "topics.json")
    table = {"topicConfigTable": {"a": {"readQueueNums": 3}}}
    path.with_name("topics.json.bak").write_text(json.dumps(table))
    topics = load_topics(StoreDirectory(str(root))) or {}
    assert topics["a"].read_queue_nums == 3


def test_merging_topics_and_journals(root, caplog):
    grow(root / "config" / "topics.json")
    merge_topics(str(root), {"a": 1}, 0, lambda *_: None)
    assert re.search(f"topics.json: cannot be read: .*{HUGE} bytes", caplog.text)
    assert (root / "config" / "topics.json.unreadable").stat().st_size == HUGE
    path = grow(root / "intent.json")
    with pytest.raises(StoreFormatError, match=f"intent.json: {HUGE} bytes"):
        read_json(str(path), StoreDirectory(str(root)))


def test_a_broker_configuration(tmp_path):
    with pytest.raises(StoreReadError, match=f"broker.conf: {HUGE} bytes long"):
        load_broker_config(str(grow(tmp_path / "broker.conf")))


@pytest.mark.parametrize(
    "name", ["checkpoint", "lock", "abort.bak", "config/topics.json", "config/topics.json.bak"]
)
def test_check_recovery_and_salvage_get_by(root, tmp_path, name):
    store = golden("onefile-5x")
    grow(root / name)
    report = checked(root, store.config_properties)
    kind = {"config/topics.json": "SETTINGS_LOST", "config/topics.json.bak": "SETTINGS_STOP"}
    told = {each for each in all_kinds(report) if each.startswith("SETTINGS")}
    assert told == {kind[name]} if name in kind else not told
    config = MessageStoreConfig.from_properties(store.config_properties)
    target = tmp_path / "new"
    assert salvage_store(str(root), str(target), config, SalvageOptions(lambda: 0)).records == 5
    assert sum(path.stat().st_size for path in target.rglob("*") if path.is_file()) < 1 << 20
    if "topics" not in name:
        recover_store(str(root), config, clock=lambda: 0)
