"""Stores that RocketMQ wrote: what is good is found good, and nothing is touched."""

from __future__ import annotations

import pytest

from store_core.tools.check import Severity
from tests.golden_store import GOLDEN_NAMES, RECOVERED_NAMES, golden, tree_state
from tests.store_core.tools.check.support import all_kinds, checked, kinds

CLEAN = tuple(name for name in GOLDEN_NAMES if name not in RECOVERED_NAMES)


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
    gap, tail = report.of(Severity.DAMAGE)
    torn = store.config["torn"]
    assert gap.commit_log_offset == 222710
    assert gap.byte_count + tail.byte_count == report.counts.lost_bytes == 502, torn
    lost = next(f for f in report.findings if f.kind.name == "UNIT_OF_LOST_RECORD")
    assert (lost.place, lost.position, lost.count) == ("TopicTest/3", 96, 1)


@pytest.mark.parametrize("name", RECOVERED_NAMES)
def test_recovered_stores_have_no_damage(name: str) -> None:
    store = golden(name, recovered=True)
    report = checked(store.root, store.config_properties)
    assert report.of(Severity.DAMAGE) == ()
    expected = {"torn-5x": {"UNIT_BEHIND_END"}, "crashed-551": {"NOT_FOUND_BY_KEY"}}
    assert {f.kind.name for f in report.of(Severity.REPAIRABLE)} == expected.get(name, set())
    if name == "crashed-551":  # its recovery begins later, and leaves a hole in the index
        return
    double = next(f for f in report.findings if f.kind.name == "INDEX_DOUBLE")
    assert (double.commit_log_offset, double.count) == (219136, 3)


@pytest.mark.parametrize("name", ["cluster-5x", "cluster-5x-ext"])
def test_delivery_times_of_other_delay_levels_are_no_damage(name: str) -> None:
    # Levels stand in the broker's configuration alone: without it they cannot be known.
    store = golden(name)
    properties = {k: v for k, v in store.config_properties.items() if k != "messageDelayLevel"}
    report = checked(store.root, properties)
    assert report.is_good, report.findings
    assert all_kinds(report) <= {"TOPIC_UNKNOWN", "UNIT_TIME"}
