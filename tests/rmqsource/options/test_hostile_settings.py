# SPDX-License-Identifier: Apache-2.0
"""Odd texts in every option and every key of a broker's file give a value or a proper error."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqsource.errors import SourceError, SourceOptionError
from rmqsource.options.source_options import OPTION_TABLE, parse_options
from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.options import SINK_OPTION_TABLE, parse_sink_options
from rmqsource.sink.prepared_write import plan_write
from store_core.config.message_store_config import KEYS, MessageStoreConfig
from store_core.errors import StoreConfigError, StoreError
from store_core.snapshot.store_snapshot import StoreSnapshot

ODD = (
    "", " ", "\0", "a\0b", "abc", "-1", "0", "+5", "9" * 400, "9" * 5000, "1.5", "1e5", "nan",
    "\u0663", "\ud800", "\udc80", "..", "/", "//", "a,,b", ",", "x" * 300, "[" * 100_000, "[1]",
    '{"a":' * 50_000, '["a"]', "null", "true", "1s", "9" * 400 + "s", "-5s", "9999999999999d",
    "1s  2s", "9999999999999999999p", "*", "[a", "file:///x\0", "file:%00", "http://[", "::",
    "\x1b[0m", "2026-13-31T09:00:00Z", "9999-12-31T23:59:59Z", "a=b", "'", "topic =", "\u202e",
)  # fmt: skip
odd_texts = st.sampled_from([text for text in ODD if len(text) < 1000]) | st.text(max_size=12)
COLUMNS = resolve_sink_columns([("topic", "string"), ("body", "binary")])


@pytest.mark.parametrize("key", KEYS)
def test_settings(key):
    said = []
    for text in ODD:
        try:
            config = MessageStoreConfig.from_properties({key: text})
        except StoreConfigError as err:
            said.append(str(err))
        else:
            assert all(abs(delay) < 1 << 59 for delay in config.delay_levels_ms)
    assert said
    assert all(key in text and len(text) < 1000 for text in said)


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")  # of Python's own glob
@pytest.mark.parametrize("table", [OPTION_TABLE, SINK_OPTION_TABLE], ids=["source", "sink"])
def test_options(table):
    parse = parse_options if table is OPTION_TABLE else parse_sink_options
    refused = 0
    for info in table:
        for text in ODD:
            try:
                parse({"path": "/nowhere", info.name: text})
            except SourceOptionError:
                refused += 1
    assert refused > len(ODD)


@given(st.sampled_from([*KEYS, "brokerIP1", "listenPort"]), odd_texts)
@example("brokerIP1", "no host")
@example("listenPort", "abc")
@example("storePathCommitLog", "\0")
@example("messageDelayLevel", "9" * 400 + "s")
def test_files_of_brokers(tmp_path_factory, key, text):
    directory = tmp_path_factory.mktemp("broker")
    (directory / "broker.conf").write_bytes(f"{key}={text}\n".encode(errors="surrogatepass"))
    root = directory / "store"
    (root / "commitlog").mkdir(parents=True)
    options = {"path": str(root), "config": str(directory / "broker.conf")}
    for use in (
        lambda: plan_write(parse_sink_options(options), COLUMNS),
        lambda: StoreSnapshot(str(root), MessageStoreConfig.from_file(options["config"])).close(),
    ):
        with suppress(SourceError, StoreError):
            use()


@pytest.mark.parametrize("path", ["\0", "\ud800", "file:///%00", "a\0b"])
def test_paths_that_no_file_can_have(path):
    with pytest.raises(SourceOptionError, match="path"):
        parse_sink_options({"path": path})
    with pytest.raises((SourceError, StoreError)):
        plan_write(parse_sink_options({"path": "/nowhere", "config": path}), COLUMNS)
