# SPDX-License-Identifier: Apache-2.0
"""RocketMQ opens stores that the sink wrote, or that a killed sink left behind."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqsource.sink.committing import commit_parts
from rmqsource.sink.errors import SinkCommitError
from rmqsource.sink.task import stage_part
from store_core import MessageStoreConfig, StoreSnapshot
from store_core.commit_job import close_committed, open_for_commit
from store_core.staged_commit.staging import CrashPoints
from store_core.tools.check.store_check import check_store
from tests.golden_store import golden
from tests.interop import java_oracle
from tests.rmqsource.sink.killed_sink import SIZES, batches_of, plan_of_job, rows_of
from tests.store_core.staged_commit import support
from tests.store_core.staged_commit.test_commit import (
    killed_before_the_eight_bytes,
    segment_of,
    write_bytes,
)
from tests.store_core.test_killed_writer import Writers

pytestmark = pytest.mark.interop

LARGE, SMALL = 9, 1
"""Jobs of 90 and of 7 messages: several segments, and less than one."""
_STEPS = {
    "after intent directory sync": False,
    "before eight bytes": False,
    "after eight bytes": True,
    "after dispatch": True,
    "after ledger rename": True,
}
"""Step at which the writer dies -> whether its job is in the store."""
_TORN = (0b00001111, 0b10110000, 0b01111111, 0b11101110)
_JAVA_PUTS = 20


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    made = Writers("tests.rmqsource.sink.killed_sink")
    yield made
    made.close()


def note_sizes(root: Path, sizes: dict[str, int]) -> MessageStoreConfig:
    """Write the file sizes to RocketMQ's configuration; return the same for this project."""
    (root.parent / "config.json").write_text(json.dumps({"store": sizes}))
    return MessageStoreConfig.from_properties({key: str(size) for key, size in sizes.items()})


def write(root: Path, version: int, **options: str) -> int:
    """Write a job; return how many messages it has."""
    plan = plan_of_job(str(root), options or None)
    parts = [stage_part([batch], plan, number) for number, batch in enumerate(batches_of(version))]
    done = commit_parts(plan, parts)
    assert done is not None
    return done.messages


def assert_sound(root: Path, config: MessageStoreConfig, messages: int) -> None:
    """This project finds all messages and nothing wrong, for reading and for writing."""
    opened = open_for_commit(str(root), config, lambda: support.NOW_MS, CrashPoints())
    close_committed(opened, clean=True)
    with StoreSnapshot(root, config) as snapshot:
        report = check_store(snapshot)
    assert report.is_good, report.findings
    assert report.counts.records == messages


@pytest.mark.parametrize("api", java_oracle.APIS)
def test_a_new_store(tmp_path, api):
    root = tmp_path / "store"
    root.mkdir()
    config = note_sizes(root, SIZES)
    messages = write(root, LARGE) + write(root, SMALL)
    found = java_oracle.check(root, api=api)
    assert (found["ok"], found["messages"]) == (True, messages), found
    java_oracle.put(root, _JAVA_PUTS, 1, api=api)
    messages += _JAVA_PUTS + write(root, LARGE)
    found = java_oracle.check(root, api=api)
    assert (found["ok"], found["messages"]) == (True, messages), found
    assert_sound(root, config, messages)


@pytest.mark.parametrize(
    ("name", "api"), [("classic-5x", "v5"), ("classic-4x", "v4"), ("multipath-5x", "v5")]
)
def test_a_store_of_a_broker(tmp_path, name, api):
    source = golden(name)
    root = source.copy_to(tmp_path)
    (root.parent / "config.json").write_text(json.dumps(source.config))
    before = java_oracle.check(root, api=api)["messages"]
    added = write(root, LARGE, config=str(source.config_file))
    found = java_oracle.check(root, api=api)
    assert (found["ok"], found["messages"]) == (True, before + added), found


@pytest.mark.parametrize("api", java_oracle.APIS)
def test_a_broker_opens_what_a_killed_write_left(tmp_path, writers, api):
    for number, (step, is_in) in enumerate(_STEPS.items()):
        root = tmp_path / str(number) / "store"
        root.mkdir(parents=True)
        config = note_sizes(root, SIZES)
        before = write(root, SMALL)
        task = {"root": str(root), "version": LARGE, "seed": 1, "die_after": -1, "die_at": step}
        assert writers.run(task, None) == signal.SIGKILL
        expected = before + (rows_of(LARGE) if is_in else 0)
        found = java_oracle.check(root, api=api)
        assert (found["ok"], found["messages"]) == (True, expected), (step, found)
        if step == "before eight bytes":  # over the bytes that the job left after the end
            java_oracle.put(root, _JAVA_PUTS, 1, api=api)
            expected += _JAVA_PUTS
        assert_sound(root, config, expected)


@pytest.mark.parametrize("api", java_oracle.APIS)
@pytest.mark.parametrize("before", [10, 27])  # the job begins with a record, or with a blank one
def test_eight_bytes_that_are_torn_are_no_record(tmp_path, api, before):
    check_torn(tmp_path, api, before, random.Random(before).sample(_TORN, 2))


def check_torn(directory: Path, api: str, before: int, subsets: list[int]) -> None:
    """Let RocketMQ open a store for some subsets of the eight bytes that reached the disk."""
    for subset in subsets:
        root = directory / str(subset) / "store"
        root.mkdir(parents=True)
        note_sizes(
            root,
            {
                "mappedFileSizeCommitLog": support.SEGMENT_BYTES,
                "mappedFileSizeConsumeQueue": 16 * 20,
                "maxHashSlotNum": 8,
                "maxIndexNum": 64,
            },
        )
        intent = killed_before_the_eight_bytes(root, before)
        path, at = segment_of(root, intent.start_offset)
        for i, byte in enumerate(bytes.fromhex(intent.first_bytes)):
            if subset >> i & 1:
                write_bytes(path, at + i, bytes([byte]))
        # Most bytes of a blank record's length are zero, and the others are there before.
        is_whole = path.read_bytes()[at : at + 8] == bytes.fromhex(intent.first_bytes)
        expected = before + (intent.messages if is_whole else 0)
        assert len(support.messages(root)) == expected
        found = java_oracle.check(root, api=api)
        assert (found["ok"], found["messages"]) == (True, expected), (subset, found)
        assert is_whole or found["max_phy_offset"] == intent.start_offset
        assert len(support.messages(root)) == expected


@pytest.mark.parametrize("api", java_oracle.APIS)
def test_a_store_that_rocketmq_has_open_is_refused(tmp_path, api):
    root = tmp_path / "store"
    root.mkdir()
    config = note_sizes(root, SIZES)
    before = write(root, SMALL)
    plan = plan_of_job(str(root))
    parts = [stage_part([batch], plan, number) for number, batch in enumerate(batches_of(LARGE))]
    with java_oracle.hold(root, api=api), pytest.raises(SinkCommitError, match="Nothing was writt"):
        commit_parts(plan, parts)
    done = commit_parts(plan, parts)
    assert done is not None
    found = java_oracle.check(root, api=api)
    assert (found["ok"], found["messages"]) == (True, before + done.messages), found
    assert_sound(root, config, before + done.messages)
