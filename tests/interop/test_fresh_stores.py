# SPDX-License-Identifier: Apache-2.0
"""Stores that RocketMQ writes during the test, with other seeds: its dumps against our reads."""

from __future__ import annotations

import functools
import json
from collections import defaultdict

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.golden_store import GoldenStore
from tests.interop import java_oracle
from tests.rmqsource.reading import (
    comparable,
    expected_rows,
    name_queues,
    places,
    read_places,
    read_rows,
)

pytestmark = pytest.mark.interop

FRESH = [
    ("classic-5x", 11),
    ("classic-4x", 12),
    ("batch-5x", 13),
    ("ext-5x", 14),
    ("expired-5x", 15),
]


class FreshStore(GoldenStore):
    """A store written during the test; its dumps are plain files."""

    def dump(self, name):
        path = self.root.parent.parent / "dump" / f"{name}.jsonl"
        with path.open(encoding="utf-8", newline="\n") as lines:
            for line in lines:
                yield json.loads(line)


@pytest.fixture(scope="module", params=FRESH, ids=lambda made: f"{made[0]}-seed{made[1]}")
def fresh(request, tmp_path_factory):
    profile, seed = request.param
    target = tmp_path_factory.mktemp(profile)
    root = java_oracle.generate(profile, seed, target / "made")
    java_oracle.dump(root, target / "dump", api="v4" if profile.endswith("4x") else "v5")
    config = json.loads((root.parent / "config.json").read_text("utf-8"))
    return FreshStore(profile, False, root, config)


@functools.cache
def _rows(store):
    return expected_rows(store)


FreshStore.__hash__ = lambda self: hash(self.root)


def test_messages(fresh):
    assert comparable(read_rows(fresh.root, **fresh.options)) == _rows(fresh)
    everything = sorted(places(expected_rows(fresh, undispatched=True)))
    assert read_places(fresh.root, access="commitlog", **fresh.options) == everything


def test_every_topic_by_its_queues(fresh, tmp_path):
    root = name_queues(fresh.copy_to(tmp_path))
    topics = defaultdict(list)
    for row in _rows(fresh):
        topics[row["topic"]].append(row)
    for topic, rows in topics.items():
        read = {**fresh.options, "topic": json.dumps([topic])}
        assert read_places(root, **read) == sorted(places(rows)), topic


def test_keys(fresh):
    asked = defaultdict(set)
    for line in fresh.dump("index_query"):
        asked[line["topic"]].add(line["key"])
    for topic, keys in asked.items():
        rows = [row for row in _rows(fresh) if row["topic"] == topic]
        read = {**fresh.options, "topic": json.dumps([topic])}
        for option, test in (
            ("keys", lambda row, keys=keys: not keys.isdisjoint(row["keys"] or ())),
            ("uniqueKeys", lambda row, keys=keys: row["unique_key"] in keys),
        ):
            found = read_places(fresh.root, **read, **{option: json.dumps(sorted(keys))})
            assert found == sorted(places(row for row in rows if test(row)))


def _open(fresh):
    config = MessageStoreConfig.from_properties(fresh.config_properties)
    return StoreSnapshot(fresh.root, config)


def test_consume_queues(fresh):
    with _open(fresh) as snapshot:
        for line in fresh.dump("consume_queue"):
            if "batch_units" in line:
                continue
            queue = snapshot.consume_queue(line["topic"], line["queue_id"])
            held = snapshot.queue_range(line["topic"], line["queue_id"])
            assert (held.min_offset, held.max_offset) == (line["min_offset"], line["max_offset"])
            units = queue.read_units(held.min_offset, held.max_offset) if queue else []
            assert [list(unit) for unit in map(tuple, units)] == [
                [int(value) for value in unit] for unit in line["units"]
            ]


def test_index_answers(fresh):
    with _open(fresh) as snapshot:
        for line in fresh.dump("index_query"):
            answer = snapshot.index.query_offset(
                line["topic"], line["key"], line["max_num"], line["begin"], line["end"]
            )
            assert answer[0] == line["phy_offsets"], line


def test_get_message(fresh):
    with _open(fresh) as snapshot:
        for line in fresh.dump("get_message"):
            if line["tag_expression"] is not None:
                continue
            result = snapshot.get_message(
                "group", line["topic"], line["queue_id"], line["offset"], line["max_num"]
            )
            found = [
                *(result.status.name, result.next_begin_offset),
                *(result.min_offset, result.max_offset),
            ]
            names = ("status", "next_begin_offset", "min_offset", "max_offset")
            assert found == [line[name] for name in names], line
            assert list(dict.fromkeys(m.commit_log_offset for m in result.messages)) == list(
                dict.fromkeys(line["commit_log_offsets"])
            )


# RocketMQ's own classes write a store and read it back.


def test_generated_store_is_dumped_and_checked(tmp_path):
    store = java_oracle.generate("onefile-5x", 7, tmp_path / "made")
    out = java_oracle.dump(store, tmp_path / "dump")
    meta = json.loads((out / "meta.json").read_text("utf-8"))
    lines = (out / "messages.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == meta["line_counts"]["messages.jsonl"] == 5
    assert json.loads(lines[0])["commit_log_offset"] == 0
    assert java_oracle.check(store)["ok"]


def test_an_error_says_what_the_program_said(tmp_path):
    with pytest.raises(java_oracle.OracleError, match="no profile unheard-of"):
        java_oracle.generate("unheard-of", 1, tmp_path / "made")
