# SPDX-License-Identifier: Apache-2.0
"""Options of a stream: those that make no sense there are refused, as are impossible limits."""

from __future__ import annotations

import itertools
import json
import logging

import pytest

from rmqsource.errors import SourceOptionError, StreamDataLossError
from rmqsource.options.source_options import parse_options
from rmqsource.schema import resolve_projection, table_schema
from rmqsource.spark.store_format import StoreStream
from rmqsource.spark.stream_reader import UnlimitedStreamReader
from rmqsource.stream.stream_offset import StreamOffset
from tests.rmqsource.stream.growing_store import GrowingStore


def streaming(**options):
    return parse_options({"path": "/a", **options}, streaming=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"endingTimestamp": "1700000000000"}, "a stream has no end"),
        ({"snapshot": "{}"}, "a stream follows the store"),
        ({"messageIds": "0" * 32}, "read a batch"),
        ({"table": "topics"}, "foreachBatch"),
        ({"table": "plan"}, "cannot be followed"),
        ({"access": "index", "keys": "k"}, "auto or commitlog"),
        ({"access": "consumequeue"}, "auto or commitlog"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "above maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "0"}, "from 1"),
        ({"maxBytesPerTrigger": "0"}, "from 1"),
        ({"maxTriggerDelay": "soon"}, "15m"),
        ({"readUpTo": "committed"}, "dispatched, written, flushed"),
        ({"startingOffsets": "latest", "startingTimestamp": "1700000000000"}, "cannot be given"),
        ({"startingOffsets": '{"a":{"0":-1}}', "topic": "b"}, "is not among those of option"),
    ],
)
def test_what_makes_no_sense_in_a_stream_is_refused(options, words):
    with pytest.raises(SourceOptionError) as failure:
        streaming(**options)
    assert words in str(failure.value)
    assert failure.value.option in options


@pytest.mark.parametrize(
    "name",
    ["maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "readUpTo"],
)
def test_what_makes_no_sense_in_a_batch_is_refused(name):
    text = "written" if name == "readUpTo" else "5"
    with pytest.raises(SourceOptionError, match=f"^option '{name}': is for streams"):
        parse_options({"path": "/a", name: text})
    assert parse_options({"path": "/a", name: text}, streaming=None)


@pytest.mark.parametrize("text", ["latest", '{"a":{"0":-1}}'])
def test_a_batch_does_not_start_at_the_end(text):
    with pytest.raises(SourceOptionError, match="a batch cannot start at"):
        parse_options({"path": "/a", "startingOffsets": text})
    assert streaming(startingOffsets=text).starting_offsets is not None


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("15m", 900_000),
        ("500ms", 500),
        ("2 h", 7_200_000),
        ("30s", 30_000),
        ("7", 7),
        ("1D", 86_400_000),
    ],
)
def test_time_spans(text, milliseconds):
    assert streaming(maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


@pytest.mark.parametrize(
    "name", ["maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"]
)
def test_a_spark_that_knows_no_limits_refuses_them(name):
    options = streaming(**{name: "5"})
    projection = resolve_projection("messages", "FAILFAST", table_schema("messages", "FAILFAST"))
    with pytest.raises(SourceOptionError, match=f"'{name}': requires Spark 4.2; this is "):
        UnlimitedStreamReader(StoreStream(options), projection)


def test_a_spark_that_says_nothing_of_where_a_batch_starts(tmp_path):
    """Spark 4.0 and 4.1 ask for the newest offset, in a new process too; the start comes later."""
    projection = resolve_projection("messages", "FAILFAST", table_schema("messages", "FAILFAST"))
    with GrowingStore(tmp_path / "store") as growing:
        offsets = [None]
        rows = []
        for restart in (True, False, True, False):
            if restart:
                options = parse_options({"path": str(growing.root)}, streaming=True)
                reader = UnlimitedStreamReader(StoreStream(options), projection)
            growing.put(7)
            end = reader.latestOffset()
            assert reader.latestOffset() == end
            start = reader.initialOffset() if offsets[-1] is None else offsets[-1]
            for partition in reader.partitions(start, end):
                for batch in reader.read(partition):
                    rows += batch.column("body").to_pylist()
            offsets.append(end)
        assert rows == growing.put_bodies
        assert not StreamOffset.from_json(offsets[-1]).is_initial


def test_losses_where_spark_says_nothing_of_where_a_batch_starts(tmp_path, caplog):
    """Each query begins in a new process, which knows only the arguments of ``partitions``."""
    projection = resolve_projection("messages", "FAILFAST", table_schema("messages", "FAILFAST"))

    def reader_of(roots, **more):
        paths = json.dumps([str(root) for root in roots])
        options = parse_options({"paths": paths, **more}, streaming=True)
        return UnlimitedStreamReader(StoreStream(options), projection)

    def lost(roots, start, words):
        reader = reader_of(roots)
        with pytest.raises(StreamDataLossError, match=words):
            reader.partitions(start, reader.latestOffset())
        lossy = reader_of(roots, failOnDataLoss="false")
        with caplog.at_level(logging.WARNING):
            partitions = lossy.partitions(start, lossy.latestOffset())
        assert caplog.records[-1].levelno == logging.WARNING
        assert [split for split in partitions if split.value is not None] == []

    clock = itertools.count(1_700_000_000_000).__next__
    with GrowingStore(tmp_path / "a") as one, GrowingStore(tmp_path / "b", clock=clock) as other:
        one.put(20)
        other.put(20)
        read = reader_of([one.root, other.root]).latestOffset()
        lost([one.root], read, f"{other.root}: it was read up to offset .* no longer named")
        end = other.store.max_phy_offset
        other.make_anew()
        other.put_bodies.clear()
        other.put(5)
        ends = f"up to offset {end}, but its log now ends at {other.store.max_phy_offset}"
        lost([one.root, other.root], read, ends)
        other.put(15)
        assert other.store.max_phy_offset == end
        lost([one.root, other.root], read, "but its log now ends at")
        same = reader_of([one.root]).latestOffset()
        assert list(reader_of([one.root]).partitions(same, same)) == []
