# SPDX-License-Identifier: Apache-2.0
"""RocketMQ opens crashed stores that this project recovered, and finds every message."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store_core import Message, MessageStore, StoreLockedError
from store_core.config.message_store_config import MessageStoreConfig
from store_core.files.store_directory import StoreDirectory
from store_core.log.commit_log import CommitLog, scan_frames
from store_core.log.log_scan import skip_gap
from store_core.recovery.recovery_plan import Loss
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.state.checkpoint import StoreCheckpoint
from store_core.tools.repair.rebuild_in_place import rebuild_index_in_place, rebuild_queues_in_place
from store_core.tools.repair.store_recovery import plan_recovery, recover_store
from tests.golden_kinds import unpack_option
from tests.golden_store import golden
from tests.interop import java_oracle
from tests.store_core.crash.messages import make_message
from tests.store_core.tools.salvage.damage import NAMES, Damage, damaged, judge, salvage

pytestmark = pytest.mark.interop

_BODY_AT = 88
_EVER = 1 << 62
SEEDS = (15, 22, 12, 41)
"""A store whose first messages are lost, one with inner batches, one of 4.9, one of many paths."""
SETTINGS = {"enableAcceleratedRecovery": "true"}
CONFIG = MessageStoreConfig(
    max_hash_slot_num=20,
    max_index_num=50,
    mapped_file_size_commit_log=16384,
    mapped_file_size_consume_queue=2000,
)


@pytest.mark.parametrize("api", java_oracle.APIS)
@pytest.mark.parametrize(
    ("name", "by_java"), [("crashed-5x", False), ("torn-5x", False), ("torn-5x", True)]
)
def test_crashed_and_torn_stores(tmp_path, name, by_java, api):
    # by_java: recovered by RocketMQ before, which leaves phantom units, and records after the cut
    store = golden(name, recovered=by_java)
    root = store.copy_to(tmp_path)
    shutil.copy(store.directory / "config.json", tmp_path)
    config = MessageStoreConfig.from_properties(store.config_properties)
    end = recovered_end(root, config)
    assert end == store.meta["max_phy_offset"]
    found = java_oracle.check(root, api=api)
    assert found["ok"], found
    assert found["messages"] == len(list(store.dump("messages")))
    assert recovered_end(root, config) == end


def test_a_torn_store_of_an_old_release(tmp_path):
    root = java_oracle.generate("classic-4x", 31, tmp_path / "made")
    before = java_oracle.check(root, api="v4")["messages"]
    java_oracle.put(root, 20, 1, api="v4", halt=True)
    config = MessageStoreConfig.from_properties(
        golden("classic-4x").config_properties  # that of the profile, whatever the seed
    )
    start, end = last_record(root, config)
    path = root / "commitlog" / f"{start - start % config.mapped_file_size_commit_log:020d}"
    with path.open("rb+") as file:
        file.seek(start % config.mapped_file_size_commit_log + _BODY_AT)
        file.write(bytes(end - start - _BODY_AT))
    recovered_end(root, config)
    found = java_oracle.check(root, api="v4")
    assert found["ok"], found
    assert found["messages"] == before + 19


@pytest.mark.parametrize("api", java_oracle.APIS)
@pytest.mark.parametrize("at_border", [True, False])
def test_what_a_cut_by_rocketmq_left_is_no_message(tmp_path, api, at_border):
    """RocketMQ recovers a torn log, even at the begin of a segment, and stops cleanly.

    After the cut readable records remain, all of which were dispatched before the crash.
    """
    profile = "classic-5x" if api == "v5" else "classic-4x"
    root = java_oracle.generate(profile, 31, tmp_path / "made")
    config = MessageStoreConfig.from_properties(golden(profile).config_properties)
    size, starts = config.mapped_file_size_commit_log, record_starts(root, config)
    last = [start for start in starts if start // size == starts[-1] // size]
    torn = last[0 if at_border else 3]
    assert (torn % size == 0) == at_border
    with (root / "commitlog" / f"{torn - torn % size:020d}").open("rb+") as file:
        file.seek(torn % size + 4)
        file.write(b"\0")
    (root / "abort").write_text("1" if api == "v5" else "")
    wanted = starts.index(torn)
    assert java_oracle.check(root, api=api, may_cut=True)["messages"] == wanted
    with StoreSnapshot(root, config) as view:
        assert view.end_offset == torn
    planned = plan_recovery(str(root), config).log
    assert (planned.log_end, planned.loss) == (torn, Loss.OLD_CUT)
    assert planned.records_behind == len(last) - (1 if at_border else 4)
    assert recovered_end(root, config) == torn
    for release in java_oracle.APIS if api == "v4" else ("v5",):
        found = java_oracle.check(root, api=release)
        assert found["ok"], found
        assert found["messages"] == wanted


@pytest.mark.parametrize("api", java_oracle.APIS)
def test_a_store_of_which_everything_was_cut(tmp_path, api):
    store = golden("classic-5x" if api == "v5" else "classic-4x")
    root = store.copy_to(tmp_path)
    shutil.copy(store.directory / "config.json", tmp_path)
    config = MessageStoreConfig.from_properties(store.config_properties)
    with min((root / "commitlog").iterdir()).open("rb+") as file:
        file.seek(4)
        file.write(b"\0")
    (root / "abort").write_text("1" if api == "v5" else "")
    assert recovered_end(root, config) == 0
    found = java_oracle.check(root, api=api)
    assert found["ok"], found
    assert found["messages"] == 0
    java_oracle.put(root, 20, 1, api=api)
    found = java_oracle.check(root, api=api)
    assert (found["ok"], found["messages"]) == (True, 20), found


def record_starts(root, config):
    """Return the offsets at which the records of a log start."""
    with closing(CommitLog(StoreDirectory(str(root)), config)) as log:
        parts = scan_frames(log, 0, log.segments.max_offset, on_gap=skip_gap)
        return [start for part in parts for start in part.column("commit_log_offset").tolist()]


def last_record(root, config):
    """Return start and end of the last record of a log."""
    with closing(CommitLog(StoreDirectory(str(root)), config)) as log:
        *_, frames = scan_frames(log, 0, log.segments.max_offset, on_gap=skip_gap)
        start = int(frames.column("commit_log_offset")[-1])
        return start, start + int(frames.column("total_size")[-1])


def recovered_end(root, config):
    """Recover a store and return the end of its log."""
    done = recover_store(str(root), config, clock=lambda: time.time_ns() // 10**6, cut=True)
    return done.log.log_end


# RocketMQ opens stores with rebuilt index and queues, and finds all that it wrote.


@pytest.mark.parametrize(("name", "api"), [("expired-5x", "v5"), ("classic-4x", "v4")])
def test_rebuilt_store_is_the_same_to_rocketmq(tmp_path: Any, name: str, api: str) -> None:
    source = golden(name)
    root = source.copy_to(tmp_path)
    shutil.copy(source.directory / "config.json", tmp_path)
    config = MessageStoreConfig.from_properties(source.config_properties)
    rebuild_index_in_place(str(root), config, clock=lambda: 1_800_000_000_000)
    rebuild_queues_in_place(str(root), config)
    out = java_oracle.dump(root, tmp_path / "dump", api=api)
    for dump in ("messages", "consume_queue", "offset_by_time", "get_message"):
        lines = (out / f"{dump}.jsonl").read_text("utf-8").split("\n")[:-1]
        assert [json.loads(line) for line in lines] == list(source.dump(dump)), dump
    begin = source.meta["min_phy_offset"]
    lines = (out / "index_query.jsonl").read_text("utf-8").split("\n")[:-1]
    for line, row in zip(lines, source.dump("index_query")):
        answer = json.loads(line)
        if row["begin"] or row["end"] < _EVER:
            continue  # times in the index depend on where its files begin
        assert answer["message_offsets"] == row["message_offsets"], row["key"]
        assert answer["phy_offsets"] == [at for at in row["phy_offsets"] if at >= begin]
    found = java_oracle.check(root, api=api)
    assert found["ok"], found


# RocketMQ opens stores salvaged from damaged ones, and finds nothing wrong.


def opened_by_rocketmq(damage: Damage, name: str, directory: Path) -> dict[str, object]:
    """Let RocketMQ open ``DIRECTORY/new``; return its findings."""
    settings = golden(name).config
    (directory / "config.json").write_text(
        json.dumps(
            {
                "store": settings.get("store") or settings["broker_settings"],
                "commitlog_dirs": ["commitlog"],
                "topic_queue_types": settings.get("topic_queue_types", {}),
            }
        )
    )
    api = "v4" if name.endswith("-4x") else "v5"
    return java_oracle.check(directory / "new", api=api)


@pytest.mark.parametrize("seed", SEEDS)
def test_rocketmq_opens_what_was_salvaged(seed, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "made").mkdir()
    damage = damaged(seed, tmp_path / "old")
    report = salvage(damage, tmp_path / "made" / "new")
    judge(damage, tmp_path / "made" / "new", report)
    found = opened_by_rocketmq(damage, NAMES[seed % len(NAMES)][0], tmp_path / "made")
    assert found["ok"], f"{damage.done} {found}"


# This project refuses a store that RocketMQ has open, and the other way round.


@pytest.fixture
def opened(tmp_path):
    source = golden("onefile-5x")
    root = source.copy_to(tmp_path)
    shutil.copy(source.directory / "config.json", tmp_path)
    config = MessageStoreConfig.from_properties(source.config_properties)
    return root, replace(config, store_path_root_dir=str(root))


@pytest.mark.parametrize("api", java_oracle.APIS)
def test_rocketmq_has_it_open(opened, api):
    root, config = opened
    with java_oracle.hold(root, api=api) as process:
        who = f"process {process.pid} has" if api == "v5" else "another process has"
        with pytest.raises(StoreLockedError, match=who):
            MessageStore(config).load()
    with MessageStore(config) as store:
        assert store.put_message(make_message(0)).status.name == "PUT_OK"
    found = java_oracle.check(root, api=api)
    assert (found["ok"], found["messages"]) == (True, 6), json.dumps(found)


@pytest.mark.parametrize("api", java_oracle.APIS)
def test_rocketmq_refuses_one_that_is_open_here(opened, api):
    root, config = opened
    with MessageStore(config) as store:
        assert store.put_message(make_message(0)).status.name == "PUT_OK"
        with pytest.raises(java_oracle.OracleError, match="already started"):
            java_oracle.put(root, 1, 1, api=api)
        assert store.put_message(make_message(1)).status.name == "PUT_OK"
    found = java_oracle.check(root, api=api)
    assert (found["ok"], found["messages"]) == (True, 7), json.dumps(found)


# RocketMQ 5.5.1 with accelerated recovery opens a store written here after a crash.


def put(store: MessageStore, count: int) -> None:
    for number in range(count):
        body = b"%d" % number * 40
        store.put_message(Message("TopicTest", body, queue_id=number % 2, tags="t", keys=["k"]))
    assert store.wait_for_dispatch(60)


def write_and_crash(config: MessageStoreConfig) -> None:
    """Put 300 messages, flush the queues, put 20 more, and end without a stop."""
    child = os.fork()
    if child == 0:
        store = MessageStore(config)
        store.load()
        store.start()
        put(store, 300)
        store.services.flush_queues.finish()
        put(store, 20)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("is_new", [False, True])
def test_a_store_of_a_crash_loads_whole(tmp_path: Path, is_new: bool) -> None:
    root, before = tmp_path / "store", 0
    config = replace(CONFIG, store_path_root_dir=str(root), enable_accelerated_recovery=is_new)
    if is_new:
        (tmp_path / "config.json").write_text(_SIZES)
    else:
        before = 5
        unpack_option("accelerated-recovery", tmp_path)
    write_and_crash(config)
    checkpoint = StoreCheckpoint.from_bytes((root / "checkpoint").read_bytes())
    assert (root / "abort").exists()
    assert (checkpoint.logics_physical_offset or 0) > 0
    found: dict[str, Any] = java_oracle.check(root, api=java_oracle.NEWEST, settings=SETTINGS)
    assert found["ok"], found
    assert found["messages"] == before + 320


def test_without_that_number_it_does_not_load(tmp_path: Path) -> None:
    root = unpack_option("accelerated-recovery", tmp_path)
    path = root / "checkpoint"
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes(8) + data[48:])
    (root / "abort").write_text("1")
    assert not java_oracle.check(root, api=java_oracle.NEWEST, settings=SETTINGS)["loaded"]


_SIZES = """{"store": {"mappedFileSizeCommitLog": 16384, "mappedFileSizeConsumeQueue": 2000,
"maxHashSlotNum": 20, "maxIndexNum": 50, "flushDiskType": "ASYNC_FLUSH"},
"commitlog_dirs": ["commitlog"], "topic_queue_types": {}}
"""
