# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import pickle
from dataclasses import fields
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqsource.errors import SourceOptionError
from rmqsource.options.source_options import (
    OPTION_TABLE,
    SourceOptions,
    check_commit_log_paths,
    parse_options,
)


def parse(**options):
    return parse_options({"path": "/store", **options})


def refused(match, **options):
    with pytest.raises(SourceOptionError, match=match) as caught:
        parse(**options)
    return caught.value


def test_defaults():
    options = parse()
    assert options == SourceOptions(paths=("/store",))
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_table_of_options_is_the_dataclass():
    known = {info.field for info in OPTION_TABLE if info.field}
    assert known == {f.name for f in fields(SourceOptions)} - {
        "store_config",
        "working_directory",
        "on_damage",
        "drops_reported",
    }


def test_names_in_any_case():
    assert parse(QUEUEID="3").queue_ids == (3,)
    assert parse(queueid="3").queue_ids == (3,)
    with pytest.raises(SourceOptionError, match="'queueId': is given twice"):
        parse(QUEUEID="3", queueid="3")


def test_unknown_option_names_the_nearest():
    error = refused("did you mean 'startingTimestamp'", startingtimestmp="1")
    assert "failOnDataLoss" not in str(error)
    far = str(refused("is unknown; options are path, ", zzzzzzzz="1"))
    assert "failOnDataLoss" in far
    assert "did you mean" not in far


def test_paths():
    assert parse_options({"paths": '["/a", "/b,c"]'}).paths == ("/a", "/b,c")
    assert parse(path="s3://b/x?region=y").paths == ("s3://b/x?region=y",)
    for options in ({}, {"paths": "[]"}, {"path": " "}, {"paths": "/a"}, {"paths": "[1]"}):
        with pytest.raises(SourceOptionError):
            parse_options(options)
    with pytest.raises(SourceOptionError, match=r"load\(PATH\)"):
        parse_options({"topic": "a"})
    refused("cannot be given together", paths='["/a"]')


def test_lists():
    assert parse(topic=" a|b , %RETRY%g,a|b").topics == ("a|b", "%RETRY%g")
    assert parse(keys='["k 1", " k,2 "]').keys == ("k 1", " k,2 ")
    assert parse(queueId=" 1, 0,1").queue_ids == (1, 0)
    assert parse(queueId="[2, 0]").queue_ids == (2, 0)
    for text in ("", "a,,b", "[]", '["a", 1]', '[""]', "[a", "[" * 100_000, '["\\ud800"]'):
        refused("^option 'topic': ", topic=text)
    for text in ("", "a", "-1", "2147483648", "[1.0]", "[true]", "1 2", "[null]", "9" * 5000, "١"):
        refused("^option 'queueId': ", queueId=text)


def test_message_ids():
    short, long = "7f" * 16, "AB" * 28
    assert parse(messageIds=f"{short},{long}").message_ids == (short.upper(), long)
    refused("uniqueKeys", messageIds="7F00")


def test_words_and_flags():
    options = parse(mode="permissive", access="CommitLog", table="Messages", body="RAW")
    assert (options.mode, options.access, options.table, options.body) == (
        "PERMISSIVE",
        "commitlog",
        "messages",
        "raw",
    )
    assert parse(checkCRC="TRUE", failOnDataLoss="False").check_crc is True
    for text in ("1", "yes", "", "truee"):
        refused("expected one of true, false", checkCRC=text)
    refused("FAILFAST, PERMISSIVE, DROPMALFORMED", mode="strict")
    refused("consumer_offsets", table="message")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("64k", 65536),
        ("128M", 128 << 20),
        ("1g", 1 << 30),
        ("2 kb", 2048),
        ("3KiB", 3072),
    ],
)
def test_bytes(text, size):
    assert parse(maxPartitionBytes=text).max_partition_bytes == size


@pytest.mark.parametrize("text", ["0", "-1", "1.5m", "m", "1x", "", "9999999999p", "0x10"])
def test_bad_bytes(text):
    refused("^option 'maxPartitionBytes': expected a number of bytes", maxPartitionBytes=text)


def test_counts_have_bounds():
    refused("from 1 to", batchRows="0")
    refused("from 1 to", maxPartitions="2147483648")
    refused("from 0 to", storeTimeSlackMs="-1")
    refused("above maxPartitions 5", minPartitions="6", maxPartitions="5")
    assert parse(minPartitions="4000").min_partitions == 4000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000123", 1700000000123),
        ("-5", -5),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01 08:00:01.5+08:00", 1500),
        ("1970-01-01T00:00+0530", -19_800_000),
        ("1970-01-01T00:00-05", 18_000_000),
        ("1970-01-02Z", 86_400_000),
        ("1970-01-01T00:00:00.0001Z", 1),  # up: the first whole ms at or after it
        ("1969-12-31T23:59:59.999900000Z", 0),
        ("9999-12-31T23:59:59.999-18:00", 253_402_365_599_999),
    ],
)
def test_instants(text, ms):
    assert parse(startingTimestamp=text).starting_timestamp_ms == ms


@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)),
    st.integers(-1080, 1080),
)
def test_instants_equal_python_s(moment, minutes):
    moment = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    micros = (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
    assert parse(endingTimestamp=moment.isoformat()).ending_timestamp_ms == -(-micros // 1000)


def test_instant_without_offset_shows_the_utc_form():
    refused("write '2026-01-31T09:30:00Z'", startingTimestamp="2026-01-31 09:30")
    refused("write '2026-01-31T00:00:00.25Z'", endingTimestamp="2026-01-31T00:00:00.25")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-13-01T00:00:00Z",
        "2026-02-30Z",
        "0000-01-01Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:00+19:00",
        "2026-01-01T00:00:00+01:75",
        "9223372036854775808",
    ],
)
def test_no_instants(text):
    refused("^option 'startingTimestamp': expected", startingTimestamp=text)


def test_tags():
    assert parse(tags="TagA ||TagB|| TagA").tags == ("TagA", "TagB")
    assert parse(tags=" * ").tags is None
    assert parse(tags="").tags is None
    assert parse(tags="a|b").tags == ("a|b",)
    refused("TagA", tags=" || ")


def test_pattern():
    assert parse(topicPattern="%RETRY%.*").topic_pattern == "%RETRY%.*"
    refused("regular expression", topicPattern="a(")


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "a", "topicPattern": "a"},
        {"startingTimestamp": "1", "startingOffsets": "earliest"},
        {"endingTimestamp": "1", "endingOffsets": "latest"},
        {"startingTimestamp": "2", "endingTimestamp": "1"},
        {"startingOffsets": '{"a":{"0":2}}', "endingOffsets": '{"a":{"0":1}}'},
        {"topic": "a", "startingOffsets": '{"b":{"0":2}}'},
        {"topicPattern": "a.*", "endingOffsets": '{"b":{"0":2}}'},
        {"queueId": "1", "endingOffsets": '{"b":{"0":2}}'},
        {"access": "index"},
        {"table": "topics", "queueId": "0"},
        {"table": "queues", "tags": "a"},
        {"table": "checkpoint", "topic": "a"},
        {"table": "segments", "access": "commitlog"},
    ],
    ids=str,
)
def test_contradictions(options):
    with pytest.raises(SourceOptionError):
        parse(**options)


def test_what_is_no_contradiction():
    assert parse(startingTimestamp="1", endingTimestamp="1").ending_timestamp_ms == 1
    assert parse(access="index", uniqueKeys="u").access == "index"
    assert parse(access="index", table="keys").access == "index"  # WHERE key = ... may follow
    assert parse(table="queues", topic="a", queueId="1").topics == ("a",)
    assert parse(topic="a", startingOffsets='{"a":{"0":2}}', endingTimestamp="9")


def test_sizes_of_the_store():
    options = parse(
        config="/etc/broker.conf",
        MAPPEDFILESIZECOMMITLOG="64k",
        mappedFileSizeConsumeQueueExt="4k",
        maxIndexNum="400",
        messageDelayLevel="1s 5m 2h",
        storePathCommitLog="log1, log2",
    )
    assert options.config == "/etc/broker.conf"
    assert options.store_config == (
        ("mappedFileSizeCommitLog", 65536),
        ("mappedFileSizeConsumeQueueExt", 4096),
        ("maxIndexNum", 400),
        ("messageDelayLevel", "1s 5m 2h"),
        ("storePathCommitLog", "log1,log2"),
    )
    refused("from 1 to", maxHashSlotNum="0")
    refused("number of bytes", mappedFileSizeConsumeQueue="2g")  # a Java int
    refused("expected times", messageDelayLevel="1s,5s")


def test_absolute_log_directories_belong_to_one_store():
    assert parse(storePathCommitLog="/log").store_config
    two = {"paths": '["/a", "/b"]'}
    assert parse_options({**two, "storePathCommitLog": "log"}).store_config
    for directory in ("/log", "x,/log", "s3://b/log"):
        with pytest.raises(SourceOptionError, match="absolute"):
            parse_options({**two, "storePathCommitLog": directory})
    with pytest.raises(SourceOptionError, match="2 stores"):
        check_commit_log_paths(parse(storePathCommitLog="/log"), ("/a", "/b"))


@given(st.sampled_from(OPTION_TABLE), st.text())
def test_any_text_is_a_value_or_a_clear_error(info, text):
    with contextlib.suppress(SourceOptionError):
        assert isinstance(parse_options({"path": "/store", info.name: text}), SourceOptions)


@pytest.mark.parametrize("text", ["1000000000", " 1795263993", "99999999999"])
def test_seconds_are_no_milliseconds(text: str) -> None:
    right = f"write {int(text) * 1000};"
    assert right in str(refused("looks like seconds", startingTimestamp=text))
    assert right in str(refused("looks like seconds", endingTimestamp=text))
    assert parse(startingTimestamp=f"{text.strip()}000").starting_timestamp_ms == int(text) * 1000


def test_the_written_time_of_few_milliseconds_is_taken() -> None:
    text = str(refused("looks like seconds", startingTimestamp="1795263993")).split("write ")[-1]
    assert parse(startingTimestamp=text).starting_timestamp_ms == 1795263993
