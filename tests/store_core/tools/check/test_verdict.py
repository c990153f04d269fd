# SPDX-License-Identifier: Apache-2.0
"""The conclusions of a check with little to read: no log, no permission, no records."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.files.byte_source import ByteSource, read_error
from store_core.files.store_directory import StoreDirectory
from store_core.layout import CQ_UNIT
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.check import CheckReport, Severity, Verdict, check_store
from store_core.tools.check.finding_kinds import FindingKind
from tests.golden_store import GOLDEN_NAMES, RECOVERED_NAMES, golden, tree_state
from tests.store_core.tools.check.support import all_kinds, checked, kinds

CLEAN = tuple(name for name in GOLDEN_NAMES if name not in RECOVERED_NAMES)


class Forbidding(StoreDirectory):
    """A directory with unreadable files, even if the tests run as a user who may read all."""

    forbidden = ""

    def open(self, path: str) -> ByteSource:
        if self.forbidden and self.forbidden in path:
            raise read_error(PermissionError(13, "Permission denied"), path)
        return super().open(path)


def check_without(root: Path, forbidden: str, properties: dict[str, str]) -> CheckReport:
    directory = Forbidding(str(root))
    with StoreSnapshot(directory, MessageStoreConfig.from_properties(properties)) as view:
        directory.forbidden = forbidden
        return check_store(view)


@pytest.mark.parametrize("name", ["classic-5x", "classic-4x", "batch-5x", "cluster-5x"])
@pytest.mark.parametrize("lost", [(), ("consumequeue", "batchconsumequeue"), ("index",)])
def test_a_log_that_is_gone_is_damage(tmp_path, name, lost):
    store = golden(name)
    root = store.copy_to(tmp_path)
    shutil.rmtree(root / "commitlog")
    (root / "commitlog").mkdir()  # as the place where a disk is not mounted
    for part in lost:
        shutil.rmtree(root / part, ignore_errors=True)
    report = checked(root, store.config_properties)
    assert report.verdict is Verdict.DAMAGED
    assert "LOG_MISSING" in kinds(report)


@pytest.mark.parametrize("left", ["consumequeue", "index", "checkpoint", "config"])
def test_one_trace_of_a_message_is_enough(tmp_path, left):
    store = golden("cluster-5x")
    root = store.copy_to(tmp_path)
    for entry in [entry for entry in root.iterdir() if entry.name not in {left, "lock"}]:
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    (root / "commitlog").mkdir()
    assert "LOG_MISSING" in kinds(checked(root, store.config_properties))


def test_a_store_that_never_got_a_message_is_good():
    report = checked(golden("empty-5x").root, golden("empty-5x").config_properties)
    assert (report.verdict, report.verdict_text) == (Verdict.GOOD, "good")


@pytest.mark.parametrize("missing", ["lock", "checkpoint", "commitlog"])
def test_an_empty_store_that_no_broker_made_is_not_good(tmp_path, missing):
    root = golden("empty-5x").copy_to(tmp_path)
    path = root / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    report = checked(root, golden("empty-5x").config_properties)
    assert report.verdict is Verdict.NOT_CHECKED
    assert all_kinds(report) == {"LOG_UNKNOWN"}
    assert report.verdict_text == "not checked: log unknown"


@pytest.mark.parametrize("queues", [True, False])
def test_random_bytes_are_no_good_log(tmp_path, queues):
    store = golden("onefile-5x")
    root = store.copy_to(tmp_path)
    path = next((root / "commitlog").iterdir())
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))
    if not queues:
        for name in ("consumequeue", "index"):
            shutil.rmtree(root / name, ignore_errors=True)
    report = checked(root, store.config_properties)
    assert report.verdict is Verdict.DAMAGED
    assert {"NO_RECORD", "LOG_GAP", "LOG_TAIL"} & set(kinds(report))


@pytest.mark.parametrize(
    ("name", "forbidden"),
    [
        ("classic-5x", "commitlog/00000000000000065536"),
        ("classic-5x", "consumequeue/TopicTest/0/"),
        ("batch-5x", "batchconsumequeue/BatchTopic/0/"),
        ("classic-5x", "/index/"),
        ("cluster-5x", "config/topics.json"),
        ("ext-5x", "consumequeue_ext/ExtA/0"),
    ],
)
def test_a_file_that_may_not_be_read_is_not_damage(name, forbidden):
    store = golden(name)
    report = check_without(store.root, forbidden, store.config_properties)
    assert report.verdict is Verdict.NOT_CHECKED, report.findings
    assert "NO_PERMISSION" in all_kinds(report)
    assert report.verdict_text.startswith("not checked: ")
    assert not report.is_good


def test_damage_elsewhere_is_still_told(tmp_path):
    store = golden("torn-5x")
    report = check_without(store.root, "consumequeue/TopicTest/0/", store.config_properties)
    assert report.verdict is Verdict.DAMAGED
    assert report.verdict_text.endswith("1 parts were not checked")


# Stores that RocketMQ wrote: good ones are found good, and no file is touched.


@pytest.mark.parametrize("name", CLEAN)
def test_clean_stores_are_good_and_not_touched(name: str) -> None:
    store = golden(name)
    before = tree_state(store.root)
    report = checked(store.root, store.config_properties)
    assert tree_state(store.root) == before
    assert report.is_good, report.findings
    assert all_kinds(report) <= {"TOPIC_UNKNOWN"}
    assert report.counts.lost_bytes == report.counts.stale_bytes == 0
    directories = store.config.get("commitlog_dirs", ["commitlog"])
    files = [path for name in directories for path in (store.root / name).iterdir()]
    log_bytes = sum(path.stat().st_size for path in files)
    assert report.counts.log_bytes == log_bytes, "every byte of the log is accounted for"


@pytest.mark.parametrize("name", [name for name in CLEAN if not name.startswith("cluster")])
def test_counts_are_those_of_the_dumps(name: str) -> None:
    store = golden(name)
    counts = checked(store.root, store.config_properties).counts
    assert counts.records == sum(1 for _ in store.dump("messages"))
    queues = list(store.dump("consume_queue"))
    assert counts.units == sum(len(q.get("batch_units") or q["units"]) for q in queues)
    assert counts.queues == len(queues)
    assert counts.property_crcs == (counts.records if name.startswith("batch") else 0)


@pytest.mark.parametrize("name", ["crashed-5x", "crashed-551"])
def test_crashed_store_has_no_damage_and_tells_what_is_not_dispatched(name: str) -> None:
    store = golden(name)
    report = checked(store.root, store.config_properties)
    assert report.is_good
    found = {finding.kind.name: finding.count for finding in report.findings}
    assert found["NOT_DISPATCHED"] == 80
    assert found["NOT_STOPPED"] == 1
    assert set(found) == {"NOT_DISPATCHED", "NOT_STOPPED", "NOT_INDEXED_YET"}


def test_torn_store_names_the_damage_and_what_was_lost() -> None:
    store = golden("torn-5x")
    report = checked(store.root, store.config_properties)
    assert kinds(report) == {"LOG_GAP": 1, "LOG_TAIL": 1}
    gap, tail = report.with_severity(Severity.DAMAGE)
    torn = store.config["torn"]
    assert gap.commit_log_offset == 222710
    assert gap.byte_count + tail.byte_count == report.counts.lost_bytes == 502, torn
    lost = next(f for f in report.findings if f.kind.name == "UNIT_OF_LOST_RECORD")
    assert (lost.place, lost.position, lost.count) == ("TopicTest/3", 96, 1)


@pytest.mark.parametrize("name", RECOVERED_NAMES)
def test_recovered_stores_have_no_damage(name: str) -> None:
    store = golden(name, recovered=True)
    report = checked(store.root, store.config_properties)
    assert report.with_severity(Severity.DAMAGE) == ()
    expected = {"torn-5x": {"UNIT_BEHIND_END"}, "crashed-551": {"NOT_FOUND_BY_KEY"}}
    assert {f.kind.name for f in report.with_severity(Severity.REPAIRABLE)} == expected.get(
        name, set()
    )
    if name == "crashed-551":  # its recovery begins later, and leaves a hole in the index
        return
    double = next(f for f in report.findings if f.kind.name == "INDEX_DOUBLE")
    assert (double.commit_log_offset, double.count) == (219136, 3)


@pytest.mark.parametrize("name", ["cluster-5x", "cluster-5x-ext"])
def test_delivery_times_of_other_delay_levels_are_no_damage(name: str) -> None:
    # Levels are only in the broker's configuration: without it they cannot be known.
    store = golden(name)
    properties = {k: v for k, v in store.config_properties.items() if k != "messageDelayLevel"}
    report = checked(store.root, properties)
    assert report.is_good, report.findings
    assert all_kinds(report) <= {"TOPIC_UNKNOWN", "UNIT_TIME"}


@pytest.mark.parametrize("byte", [3, 4, 6, 7])
def test_a_damaged_delivery_time_is_seen_though_delay_levels_are_unknown(tmp_path, byte) -> None:
    """Levels are whole seconds; no flipped bit moves a time by so many, or far into the past."""
    store = golden("cluster-4x")
    root = store.copy_to(tmp_path)
    queue = next((root / "consumequeue/SCHEDULE_TOPIC_XXXX/2").iterdir())
    data = bytearray(queue.read_bytes())
    data[10 * CQ_UNIT.size + CQ_UNIT.at("tags_code") + byte] ^= 0x20
    queue.write_bytes(data)
    report = checked(root, store.config_properties)
    (found,) = (f for f in report.findings if f.kind is FindingKind.UNIT_DELIVERY)
    assert (found.place, found.position, found.count) == ("SCHEDULE_TOPIC_XXXX/2", 10, 1)
    assert not report.is_good
