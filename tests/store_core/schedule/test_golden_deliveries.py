# SPDX-License-Identifier: Apache-2.0
"""Deliveries of real brokers, delivered again: due at the same time, with the same bytes."""

from __future__ import annotations

import functools
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from store_core import (
    MessageStore,
    MessageStoreConfig,
    ScheduleMessageService,
    StoreSnapshot,
)
from store_core.config.config_files import load_delay_offsets
from store_core.files.store_directory import StoreDirectory
from tests.golden_store import CLUSTER_NAMES, golden
from tests.store_core.putting import golden_message
from tests.store_core.schedule.delayed_store import (
    SCHEDULE,
    Clock,
    deliver,
    queue_of,
    without_place,
)

MAIN = [name for name in CLUSTER_NAMES if name in {"cluster-4x", "cluster-5x", "cluster-5x-ext"}]


@functools.cache
def delayed(name):
    """Return the lines of delayed.jsonl in the order of their log, and all records by offset."""
    lines = sorted(golden(name).dump("delayed"), key=lambda line: line["commit_log_offset"])
    records = {m["commit_log_offset"]: m for m in golden(name).dump("messages") if "topic" in m}
    return SimpleNamespace(lines=lines, records=records)


def golden_config(name, root):
    properties = golden(name).config_properties
    return replace(MessageStoreConfig.from_properties(properties), store_path_root_dir=str(root))


@pytest.mark.parametrize("name", MAIN)
def test_each_message_is_delivered_as_the_broker_delivered_it(name, tmp_path):
    found, clock = delayed(name), Clock()
    stop = max(line["delivered_store_timestamp"] or 0 for line in found.lines)
    events = [(line["store_timestamp"], 0, line) for line in found.lines]
    events += [(line["deliver_timestamp"], 1, line) for line in found.lines]
    expected = {}
    with MessageStore(golden_config(name, tmp_path), clock=clock) as store:
        service = ScheduleMessageService(store)
        for at, is_due, line in sorted(events, key=lambda e: e[:2]):
            if at > stop:
                continue
            clock.now = at
            if not is_due:
                given = golden_message(found.records[line["commit_log_offset"]])
                result = store.put_message(given)
                assert result.append_result.queue_offset == line["queue_offset"]
                continue
            deliver(store, service, at - 1)
            assert service.offsets[line["level"]] <= line["queue_offset"]
            deliver(store, service, at)
            assert service.offsets[line["level"]] == line["queue_offset"] + 1
            record = found.records[line["delivered_commit_log_offset"]]
            key = record["topic"], record["queue_id"]
            expected.setdefault(key, []).append(record)
        assert len(expected) > 2
        for line in found.lines:
            assert service.offsets.get(line["level"], 0) == line["level_next_offset"]
        for key, records in expected.items():
            ours = {without_place(record) for record in queue_of(store, *key)}
            assert ours == {bytes_of(name, record) for record in records}
        # As in the broker, messages at and after the offsets are pending.
        pending = {line["commit_log_offset"] for line in found.lines if line["pending"]}
        assert pending == {
            line["commit_log_offset"]
            for line in found.lines
            if line["queue_offset"] >= service.offsets.get(line["level"], 0)
        }
        assert service.delivered == len(found.lines) - len(pending)


def bytes_of(name, line):
    """Return a record of a golden log, without its place."""
    with StoreSnapshot(str(golden(name).root), golden_config(name, golden(name).root)) as found:
        return without_place(found.reader.read(line["commit_log_offset"]))


@pytest.mark.parametrize("name", MAIN)
def test_a_broker_s_store_goes_on_where_it_stopped(name, tmp_path):
    found, clock = delayed(name), Clock()
    root = tmp_path / "store"
    shutil.copytree(golden(name).root, root, ignore=shutil.ignore_patterns("timer*"))
    before = load_delay_offsets(StoreDirectory(str(root)))
    file = (root / "config" / "delayOffset.json").read_bytes()
    pending = [line for line in found.lines if line["pending"]]
    assert len(pending) >= 5
    clock.now = max(m["store_timestamp"] for m in found.records.values())
    with MessageStore(golden_config(name, root), clock=clock) as store:
        service = ScheduleMessageService(store)
        deliver(store, service)
        assert (service.delivered, service.offsets) == (0, {**service.offsets, **before})
        service.save()
        for line in sorted(pending, key=lambda line: line["deliver_timestamp"]):
            clock.now = line["deliver_timestamp"] - 1
            deliver(store, service)
            assert service.offsets[line["level"]] <= line["queue_offset"]
            clock.now += 1
            deliver(store, service)
            assert service.offsets[line["level"]] > line["queue_offset"]
            delivered = queue_of(store, line["real_topic"], int(line["real_queue_id"]))[-1]
            waited = bytes_of(name, line)
            given = replace(delivered, topic_bytes=SCHEDULE.encode(), queue_id=line["queue_id"])
            assert without_place(replace(given, total_size=len(waited))) == waited
        assert service.delivered == len(pending)
        service.save()
    # Written as the broker wrote it.
    saved = (root / "config" / "delayOffset.json").read_bytes()
    assert saved.split(b'"offsetTable"')[0].count(b"\n") == file.split(b'"offsetTable"')[0].count(
        b"\n"
    )
    assert saved.endswith(b"\n\t}\n}" if file.endswith(b"\n\t}\n}") else b"")
    assert saved.startswith(file[:20])
