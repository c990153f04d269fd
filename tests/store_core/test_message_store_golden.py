# SPDX-License-Identifier: Apache-2.0
"""The messages of golden stores, put into a store, give RocketMQ's files: log, queues, index."""

from __future__ import annotations

import base64
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from store_core import MessageStore, MessageStoreConfig, PutMessageStatus
from tests.golden_store import golden
from tests.store_core.crash.by_hand import dispatch_all, without_threads
from tests.store_core.test_put_golden import BATCH_TOPIC, given, put_together

GOLDEN = ["classic-5x", "classic-4x", "multipath-5x", "ext-5x", "batch-5x"]
QUEUES = ("consumequeue", "consumequeue_ext", "batchconsumequeue")


def files_below(root, *names):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for name in names
        for path in (root / name).rglob("*")
        if path.is_file()
    }


def index_files(root):
    """Return the index files in order; their names are creation times."""
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def bitmaps_of(store):
    """Return a function for the filter bitmaps of the golden store's extension units."""
    found = {}
    for queue in store.dump("consume_queue"):
        for unit, ext in zip(queue.get("units", ()), queue.get("ext_units", ())):
            if ext is not None and ext[2] is not None:
                found[unit[0]] = base64.b64decode(ext[2])
    return bitmaps_by_offset(found)


def bitmaps_by_offset(found):
    """Return a function for the filter bitmaps of records, given some by their physical offsets."""

    def bitmaps(columns):
        offsets = columns.frames.column("commit_log_offset").tolist()
        return np.array([found.get(offset) for offset in offsets], object)

    return bitmaps


class PutAgain:
    """Puts the messages of a golden store at its times."""

    def __init__(self, name, directory):
        self.golden, self.now = golden(name), 0
        self.root = directory / "store"
        config = MessageStoreConfig.from_properties(self.golden.config_properties)
        types = self.golden.config.get("topic_queue_types", {})
        self.store = MessageStore(
            replace(config, store_path_root_dir=str(self.root)),
            clock=lambda: self.now,
            is_batch_topic=lambda topic: types.get(topic) == "BatchCQ",
            filter_bitmaps=bitmaps_of(self.golden),
            handle_schedule_message=False,
        )

    def put_all(self, dispatch):
        lines = self.golden.dump("messages")
        for number, (_, group) in enumerate(itertools.groupby(lines, put_together)):
            part = list(group)
            self.now = part[0]["store_timestamp"]
            if part[0]["topic"] == BATCH_TOPIC:
                results = [self.store.put_messages([given(line) for line in part])]
            else:
                results = [self.store.put_message(given(line)) for line in part]
            assert {result.status for result in results} == {PutMessageStatus.PUT_OK}
            if number % 29 == 0:
                dispatch(self.store)


@pytest.mark.parametrize("name", GOLDEN)
def test_files_are_rocketmqs(name, tmp_path):
    again = PutAgain(name, tmp_path)
    with without_threads(), again.store:
        again.put_all(dispatch_all)
    expected = again.golden.root
    logs = again.golden.config["commitlog_dirs"]
    assert files_below(again.root, *QUEUES) == files_below(expected, *QUEUES)
    assert files_below(again.root, *logs) == files_below(expected, *logs)
    assert index_files(again.root) == index_files(expected)
    assert not (again.root / "abort").exists()


def test_files_are_rocketmqs_with_all_services_running(tmp_path):
    again = PutAgain("multipath-5x", tmp_path)
    with again.store:
        again.put_all(lambda _: None)
    assert files_below(again.root, *QUEUES) == files_below(again.golden.root, *QUEUES)
    assert index_files(again.root) == index_files(again.golden.root)
    assert sorted(path.name for path in Path(again.root).iterdir()) == sorted(
        {path.name for path in again.golden.root.iterdir()} - {"abort.bak"}
    )
