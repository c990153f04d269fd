# SPDX-License-Identifier: Apache-2.0
"""The verdict of a report: every state of each line, and its advice."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest

from rmqsource.explore.store_health import StoreHealth, store_health
from rmqsource.options.source_options import options_for
from rmqsource.report.report_data import ReportData, collect
from rmqsource.report.verdict import ACT, GOOD, LOOK, Judgement, verdict
from store_core.services.environment import DiskSpace
from tests.golden_store import golden

DAY_MS = 86_400_000
NOW = 1_800_000_000_000
GB = 10**9


@pytest.fixture(scope="module")
def healthy() -> ReportData:
    """A store in which nothing is wrong, stopped a minute before the report was made."""
    store = golden("cluster-5x")
    found = collect(options_for(str(store.root), {**store.options, "checkCRC": "true"}))
    return replace(
        found,
        lag=found.lag.assign(lag=0, lag_ms=0),
        transactions=found.transactions[found.transactions["state"] == "committed"],
        dead_letters=found.dead_letters[:0],
        dead_letter_count=0,
        dead_letter_groups={},
        newest_dead_letter_ms=None,
        counts=replace(found.counts, last_ms=NOW - 60_000),
        standings=[standing()],
    )


def standing(**changes: Any) -> StoreHealth:
    """Return a store of four days, 10 GB each, on a disk with much room."""
    known = StoreHealth(
        "/data/store",
        "stopped cleanly",
        broker="broker-a",
        cluster="c",
        log_bytes=40 * GB,
        first_ms=NOW - 60_000 - 4 * DAY_MS,
        last_ms=NOW - 60_000,
        disk=DiskSpace(100 * GB, 1000 * GB),
    )
    return replace(known, **changes)


def line(found: ReportData, subject: str) -> Judgement:
    (one,) = (one for one in verdict(found, NOW) if one.subject == subject)
    return one


def test_of_a_store_in_which_nothing_is_wrong_all_is_good(healthy: ReportData) -> None:
    lines = verdict(healthy, NOW)
    subjects = ["State", "Damage", "Consumer lag", "Dead letters", "Transactions", "Disk"]
    assert [one.subject for one in lines] == subjects
    assert {one.state for one in lines} == {GOOD}
    assert not any(one.todo for one in lines)


@pytest.mark.parametrize(
    ("state", "expected", "commands"),
    [
        ("stopped cleanly", GOOD, []),
        ("open in a broker", GOOD, []),
        ("not stopped cleanly", ACT, ["recover", "recover"]),
        ("unknown", ACT, ["info", "check"]),
    ],
)
def test_state(healthy: ReportData, state: str, expected: str, commands: list[str]) -> None:
    one = line(replace(healthy, standings=[standing(state=state, problem="no log")]), "State")
    assert one.state == expected
    assert [text.split()[1] for text in one.commands] == commands
    if commands[:1] == ["recover"]:
        assert one.commands[0] == "rocketmq-store recover /data/store --dry-run"


@pytest.mark.parametrize(
    ("gaps", "told", "checked", "expected", "words"),
    [
        (0, (), True, GOOD, "None seen in what the report reads. Every body was checked"),
        (0, (), False, LOOK, "Bodies were not checked"),
        (1, (), True, ACT, "1 damaged place in the log, 400 B that cannot be read."),
        (2, ("x",), False, ACT, "2 damaged places in the log"),
        (0, ("config/topics.json is skipped",), True, ACT, "1 other finding, listed below."),
    ],
)
def test_damage(
    healthy: ReportData, gaps: int, told: tuple[str, ...], checked: bool, expected: str, words: str
) -> None:
    counts = replace(healthy.counts, gaps=gaps, gap_bytes=400 * gaps)
    found = replace(healthy, counts=counts, told=told, bodies_checked=checked, config="b.conf")
    one = line(found, "Damage")
    assert one.state == expected
    assert words in one.text
    names = [text.split()[1] for text in one.commands]
    assert names == {GOOD: [], LOOK: ["check"], ACT: ["check", "salvage"]}[expected]
    if expected == ACT:
        assert one.commands[1] == ("rocketmq-store salvage /data/store NEW-STORE --config b.conf")


@pytest.mark.parametrize(
    ("state", "lag", "lag_ms", "expected", "words"),
    [
        ("stopped cleanly", 0, 0, GOOD, "All groups have consumed everything."),
        ("open in a broker", 3, 9_000, GOOD, "3 messages of topic t, by 9 s."),
        ("stopped cleanly", 3, 9_000, LOOK, "Group g is furthest behind: 3 messages"),
        ("open in a broker", 1, 11_000, LOOK, "1 message of topic t, by 11 s."),
        ("open in a broker", 3, None, LOOK, "3 messages of topic t."),
        ("open in a broker", 3, 3_600_001, ACT, "by 1 h."),
    ],
)
def test_lag(
    healthy: ReportData, state: str, lag: int, lag_ms: int | None, expected: str, words: str
) -> None:
    frame = pandas.DataFrame(
        {
            "group": ["g", "h"],
            "topic": "t",
            "queue_id": 0,
            "lag": [lag, 0],
            "expired": 0,
            "lag_ms": [lag_ms, 0],
        }
    ).astype({"lag_ms": "Int64"})
    found = replace(healthy, lag=frame, standings=[standing(state=state)])
    one = line(found, "Consumer lag")
    assert one.state == expected
    assert words in one.text
    if lag:
        assert one.commands == ("rocketmq-store lag /data/store",)


def test_the_worst_lag_is_the_longest_over_the_queues_of_a_topic(healthy: ReportData) -> None:
    frame = pandas.DataFrame(
        {
            "group": ["many", "old", "old", "CID_RMQ_SYS_TRANS"],
            "topic": ["t", "u", "u", "RMQ_SYS_TRANS_HALF_TOPIC"],
            "queue_id": [0, 0, 1, 0],
            "lag": [900, 2, 3, 5],
            "expired": 0,
            "lag_ms": [20_000, 60_000, 1, 9 * DAY_MS],
        }
    )
    one = line(replace(healthy, lag=frame), "Consumer lag")
    assert one.text == (
        "Group old is furthest behind: 5 messages of topic u, by 1 min. 1 other pair of group and "
        "topic behind."
    )


def test_offsets_outside_of_their_queues_have_a_line(healthy: ReportData) -> None:
    frame = pandas.DataFrame(
        {
            "group": ["g", "h", "h"],
            "topic": "t",
            "queue_id": [0, 1, 2],
            "lag": [-12, 30, 40],
            "expired": [0, 7, 2],
            "lag_ms": [0, 5, 5],
        }
    )
    one = line(replace(healthy, lag=frame), "Consumer offsets")
    assert one.state == ACT
    assert "group g for queue 0 of topic t by 12 messages" in one.text
    assert "9 messages deleted before they were consumed" in one.text
    one = line(replace(healthy, lag=frame[1:]), "Consumer offsets")
    assert (one.state, one.commands) == (LOOK, ("rocketmq-store lag /data/store",))


def test_a_store_without_groups_has_no_lag(healthy: ReportData) -> None:
    one = line(replace(healthy, lag=healthy.lag[:0]), "Consumer lag")
    assert (one.state, one.text) == (GOOD, "No consumer group has committed an offset here.")


@pytest.mark.parametrize(
    ("by_group", "age_ms", "expected", "words"),
    [
        ({}, None, GOOD, "None."),
        ({"g": 1}, 2 * DAY_MS, LOOK, "1 message of group g is dead."),
        ({"g": 2}, None, LOOK, "2 messages of group g are dead."),
        ({"g": 2, "h": 5}, 0, ACT, "7 messages of 2 groups are dead. Most are of h: 5. The newest"),
    ],
)
def test_dead_letters(
    healthy: ReportData,
    by_group: dict[str, int],
    age_ms: int | None,
    expected: str,
    words: str,
) -> None:
    newest = None if age_ms is None else (healthy.counts.last_ms or 0) - age_ms
    found = replace(
        healthy,
        dead_letter_count=sum(by_group.values()),
        dead_letter_groups=by_group,
        newest_dead_letter_ms=newest,
    )
    one = line(found, "Dead letters")
    assert one.state == expected
    assert words in one.text
    assert one.commands == (("rocketmq-store dlq /data/store",) if by_group else ())


@pytest.mark.parametrize(
    ("states", "expected", "words"),
    [
        ({}, GOOD, "None."),
        ({"committed": 3, "rolled_back": 1}, GOOD, "All are committed or rolled back."),
        ({"committed": 3, "pending": 1}, LOOK, "1 pending."),
        ({"unknown": 2}, LOOK, "2 with an unknown outcome."),
        ({"check_exceeded": 2, "pending": 1}, ACT, "2 given up by the broker after too many"),
    ],
)
def test_transactions(
    healthy: ReportData, states: dict[str, int], expected: str, words: str
) -> None:
    frame = pandas.DataFrame(
        {"state": list(states), "messages": list(states.values()), "oldest": None}
    )
    one = line(replace(healthy, transactions=frame), "Transactions")
    assert one.state == expected
    assert words in one.text
    has_command = one.commands == ("rocketmq-store transactions /data/store",)
    assert has_command is (expected != GOOD)


@pytest.mark.parametrize(
    ("changes", "expected", "words"),
    [
        ({}, GOOD, "grows by about 10 GB a day. With files that are kept for 72 h it settles"),
        ({"kept_hours": 24 * 100}, LOOK, "In about 75 days, 85 % of the disk will be used"),
        ({"kept_hours": 2400, "disk": DiskSpace(830 * GB, 1000 * GB)}, ACT, "In about 2 days"),
        ({"disk": DiskSpace(860 * GB, 1000 * GB)}, ACT, "Above 85 % a broker deletes files of any"),
        ({"disk": DiskSpace(910 * GB, 1000 * GB)}, ACT, "Above 90 % a broker refuses messages."),
        (
            {"first_ms": NOW - 3_600_000},
            GOOD,
            "10 % full. No forecast: it needs messages of a whole day",
        ),
        ({"first_ms": None}, GOOD, "No forecast: the store has no message."),
        ({"last_ms": None}, GOOD, "No forecast: it is not known when the last message was"),
        (
            {"first_ms": NOW - 9 * DAY_MS, "last_ms": NOW - 2 * DAY_MS},
            GOOD,
            "No forecast: the newest message is 2 days old.",
        ),
    ],
)
def test_disk(healthy: ReportData, changes: dict[str, Any], expected: str, words: str) -> None:
    one = line(replace(healthy, standings=[standing(**changes)]), "Disk")
    assert one.state == expected
    assert words in one.text
    has_command = one.commands == ("rocketmq-store topics /data/store",)
    assert has_command is (expected != GOOD)


def test_of_a_disk_elsewhere_nothing_is_said(healthy: ReportData) -> None:
    lines = verdict(replace(healthy, standings=[standing(disk=None)]), NOW)
    assert "Disk" not in {one.subject for one in lines}


def test_several_stores_have_lines_of_their_own(healthy: ReportData) -> None:
    two = [standing(), standing(store="/data/b", state="not stopped cleanly")]
    lines = verdict(replace(healthy, standings=two), NOW)
    states = {one.subject: one.state for one in lines}
    assert states["State of /data/store"] == GOOD
    assert states["State of /data/b"] == ACT
    assert "Disk of /data/b" in states


@pytest.mark.parametrize("path", ["/data/a b", "/data/$(rm -rf x)", "/data/a'b", "/data/\x1b[2J"])
def test_what_is_copied_to_a_shell_is_one_word(healthy: ReportData, path: str) -> None:
    found = replace(healthy, standings=[standing(store=path)], bodies_checked=False)
    (command,) = line(found, "Damage").commands
    assert command.isprintable()
    words = shlex.split(command)
    assert len(words) == 3
    assert words[:2] == ["rocketmq-store", "check"]


@pytest.mark.parametrize(
    ("name", "state", "broker", "cluster"),
    [
        ("cluster-5x", "stopped cleanly", "broker-a", "DefaultCluster"),
        ("crashed-5x", "not stopped cleanly", None, None),
        ("empty-5x", "stopped cleanly", None, None),
    ],
)
def test_standing_of_golden_stores(
    name: str, state: str, broker: str | None, cluster: str | None
) -> None:
    store = golden(name)
    (found,) = store_health(options_for(str(store.root), store.options))
    assert (found.state, found.broker, found.cluster) == (state, broker, cluster)
    has_messages = name != "empty-5x"
    assert (found.first_ms is not None) is has_messages
    assert (found.log_bytes > 0) is has_messages
    if has_messages:
        assert found.disk is not None
        assert 0 < found.disk.used <= found.disk.entire


def test_the_configuration_tells_what_the_broker_does(tmp_path: Path) -> None:
    store = golden("classic-5x")
    config = tmp_path / "broker.conf"
    config.write_text("brokerName=b\nfileReservedTime=5\ndiskSpaceCleanForciblyRatio=60\n")
    (found,) = store_health(options_for(str(store.root), {**store.options, "config": str(config)}))
    assert (found.broker, found.kept_hours, found.forced_share) == ("b", 5, 0.6)


def test_a_store_whose_log_is_gone_is_of_unknown_state(tmp_path: Path) -> None:
    root = golden("classic-5x").copy_to(tmp_path)
    for segment in (root / "commitlog").iterdir():
        segment.unlink()
    (found,) = store_health(options_for(str(root), golden("classic-5x").options))
    assert found.state == "unknown"
    assert "is its disk mounted" in found.problem
