# SPDX-License-Identifier: Apache-2.0
"""Every message of every golden store by every decoder, compared with RocketMQ's decoder."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta, timezone

import pytest

from store_core.codec.message_batch_codec import message_schema
from store_core.codec.message_codec import split_keys
from store_core.log.record_reader import RecordReader
from tests.golden_store import RECOVERED_NAMES, golden
from tests.store_core.snapshot.golden_snapshot import DUMPED_STORES, open_golden, scanned_columns

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SAME_NAME = [
    *("topic", "queue_id", "queue_offset", "commit_log_offset", "store_size", "tags", "flag"),
    *("sys_flag", "body_crc", "reconsume_times", "prepared_transaction_offset"),
]


def _host(host):
    if isinstance(host, str):
        return host
    return f"[{host['ip']}]:{host['port']}" if ":" in host["ip"] else f"{host['ip']}:{host['port']}"


def _time(milliseconds):
    return EPOCH + timedelta(milliseconds=milliseconds)


def _decoded(text):
    return base64.b64decode(text)


def expected_columns(lines):
    """Columns of table ``messages`` for lines of messages.jsonl."""
    columns = {name: [line[name] for line in lines] for name in SAME_NAME}
    columns["body"] = [_decoded(line.get("body_b64", line["body_raw_b64"])) for line in lines]
    columns["properties"] = [line["properties"] for line in lines]
    columns["properties_raw"] = [_decoded(line["properties_raw_b64"]) for line in lines]
    columns["unique_key"] = [line["properties"].get("UNIQ_KEY") for line in lines]
    columns["keys"] = [None if line["keys"] is None else split_keys(line["keys"]) for line in lines]
    columns["message_id"] = [line["msg_id"] for line in lines]
    for name in ("born", "store"):
        columns[f"{name}_host"] = [_host(line[f"{name}_host"]) for line in lines]
        columns[f"{name}_timestamp"] = [_time(line[f"{name}_timestamp"]) for line in lines]
    return columns


def dumped(name):
    return [line for line in golden(name).dump("messages") if not line.get("blank")]


@pytest.mark.parametrize(("name", "recovered"), DUMPED_STORES)
def test_columns_of_all_records(name, recovered):
    lines = dumped(name)
    columns = scanned_columns(open_golden(name, recovered), unwrap=False)
    columns["properties"] = [dict(pairs) for pairs in columns["properties"]]
    expected = expected_columns(lines)
    assert sorted(expected) == sorted(message_schema().names)
    for column, values in expected.items():
        assert columns[column] == values, column


@pytest.mark.parametrize(("name", "recovered"), DUMPED_STORES)
def test_look_message_by_offset_and_by_id(name, recovered):
    lines = dumped(name)
    snapshot = open_golden(name, recovered)
    found = [snapshot.look_message_by_offset(line["commit_log_offset"]) for line in lines]
    times = {"born_timestamp", "store_timestamp"}
    for column, values in expected_columns(lines).items():
        actual = [getattr(message, column) for message in found]
        assert [_time(v) for v in actual] == values if column in times else actual == values, column
    assert {message.store for message in found} <= {str(golden(name, recovered).root)}
    assert [snapshot.look_message_by_id(line["msg_id"]) for line in lines] == found


@pytest.mark.parametrize(("name", "recovered"), DUMPED_STORES)
def test_scalar_messages_equal_columns(name, recovered):
    snapshot = open_golden(name, recovered)
    reader = RecordReader(snapshot.log, snapshot.end_offset, snapshot.directory.uri)
    columns = scanned_columns(snapshot, unwrap=True)
    offsets = dict.fromkeys(columns["commit_log_offset"])
    messages = [m for offset in offsets for m in reader.messages_of(reader.read(offset))]
    for column in message_schema().names:
        actual = [getattr(message, column) for message in messages]
        if column.endswith("_timestamp"):
            actual = [_time(value) for value in actual]
        elif column == "properties":
            actual = [list(value.items()) for value in actual]
        assert actual == columns[column], column


def test_inner_messages():
    lines = [line for line in dumped("batch-5x") if "inner_messages" in line]
    columns = scanned_columns(open_golden("batch-5x"), unwrap=True)
    rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
    batch_offsets = {line["commit_log_offset"] for line in lines}
    inner = [row for row in rows if row["commit_log_offset"] in batch_offsets]
    expected = [
        (
            line["commit_log_offset"],
            int(line["properties"]["INNER_BASE"]) + i,
            item["flag"],
            item["properties"],
            _decoded(item["body_b64"]),
            item["properties"].get("UNIQ_KEY"),
            item["properties"].get("TAGS"),
        )
        for line in lines
        for i, item in enumerate(line["inner_messages"])
    ]
    actual = [
        (
            row["commit_log_offset"],
            row["queue_offset"],
            row["flag"],
            dict(row["properties"]),
            row["body"],
            row["unique_key"],
            row["tags"],
        )
        for row in inner
    ]
    assert len(expected) > len(lines)
    assert actual == expected


@pytest.mark.parametrize("name", RECOVERED_NAMES)
def test_store_that_was_not_recovered_has_every_message_that_recovery_keeps(name):
    columns = scanned_columns(open_golden(name, recovered=False), unwrap=False)
    rows = dict(zip(columns["commit_log_offset"], columns["body"]))
    expected = expected_columns(dumped(name))
    assert rows.items() >= dict(zip(expected["commit_log_offset"], expected["body"])).items()


@pytest.mark.parametrize(("name", "recovered"), DUMPED_STORES)
def test_min_and_max_phy_offset(name, recovered):
    snapshot = open_golden(name, recovered)
    if not golden(name).is_cluster:
        meta = golden(name).meta
        assert snapshot.min_phy_offset == meta["min_phy_offset"]
        assert snapshot.max_phy_offset == max(meta["max_phy_offset"], 0)
        return
    last = list(golden(name).dump("messages"))[-1]
    assert snapshot.min_phy_offset == 0
    assert snapshot.max_phy_offset == last["commit_log_offset"] + last["store_size"]
