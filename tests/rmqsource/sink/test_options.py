# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle

import pytest

from rmqsource.errors import SourceOptionError
from rmqsource.sink.options import parse_sink_options


def test_defaults_are_those_of_the_documentation():
    options = parse_sink_options({"path": "file:///tmp/a%20b"})
    assert options.path == "/tmp/a b"
    assert (options.flush, options.create_store, options.compatibility) == ("sync", True, 4)
    assert (options.compress_body_over, options.compression) == (4096, "zlib")
    assert (options.bad_rows, options.system_topics) == ("fail", False)
    assert pickle.loads(pickle.dumps(options)) == options


def test_names_come_in_any_case_and_sizes_are_kept_under_rocketmqs_keys():
    options = parse_sink_options(
        {"PATH": "/s", "mappedfilesizecommitlog": "1m", "txnappid": "a", "TXNVERSION": "7"}
    )
    assert options.store_config == (("mappedFileSizeCommitLog", 1 << 20),)
    assert (options.txn_app_id, options.txn_version) == ("a", 7)


def test_sparks_own_option_of_a_streaming_query_is_ignored():
    given = {"path": "/s", "checkpointLocation": "/c"}
    assert parse_sink_options(given) == parse_sink_options({"path": "/s"})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "no store is named"),
        ({"path": "s3://bucket/store"}, "not local"),
        ({"path": "/s", "queue": "4"}, "did you mean 'queues'"),
        ({"path": "/s", "queues": "0"}, "from 1 to 65536"),
        ({"path": "/s", "topic": "a,b"}, "one topic name"),
        ({"path": "/s", "txnAppId": "a"}, "requires 'txnVersion'"),
        ({"path": "/s", "txnVersion": "1"}, "requires 'txnAppId'"),
        ({"path": "/s", "compression": "lz4"}, "'compatibility' to 5"),
        ({"path": "/s", "compatibility": "6"}, "one of 4, 5"),
        ({"path": "/s", "badRows": "skip"}, "one of fail, drop"),
        ({"path": "/s", "flush": "maybe"}, "one of sync, async"),
        ({"path": "/s", "flush": "sync", "Flush": "sync"}, "given twice"),
    ],
)
def test_what_is_wrong_is_named(given, text):
    with pytest.raises(SourceOptionError, match=text):
        parse_sink_options(given)
