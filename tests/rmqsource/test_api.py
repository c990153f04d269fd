# SPDX-License-Identifier: Apache-2.0
"""The interface of ``import rmqsource``: tokens and plans as text, without a Spark session."""

from __future__ import annotations

import json

import pytest

import rmqsource
from rmqsource.errors import SourceOptionError
from tests.golden_store import golden
from tests.store_factory import small_store


def test_explain_tells_path_reason_and_bytes():
    store = golden("cluster-5x")
    text = rmqsource.explain(str(store.root), {**store.options, "topic": "orders"})
    for line in ("store ", "access path ", "because ", "splits ", "bytes to read ", "log ends at "):
        assert line in text
    assert str(store.root) in text


def test_explain_lists_what_is_gone():
    store = golden("expired-5x")
    options = {**store.options, "startingOffsets": '{"Busy":{"0":1}}', "failOnDataLoss": False}
    text = rmqsource.explain(str(store.root), options)
    assert "gone " in text
    assert '"stop": 209' in text


def test_explain_of_several_stores(tmp_path):
    roots = [str(small_store(tmp_path / name, 5).write()) for name in "ab"]
    assert rmqsource.explain(roots).count("access path") == 2


def test_snapshot_of_one_and_of_several(tmp_path):
    roots = [str(small_store(tmp_path / name, 5).write()) for name in "ab"]
    assert set(json.loads(rmqsource.snapshot(roots))["stores"]) == set(roots)
    assert set(json.loads(rmqsource.snapshot(str(tmp_path / "*")))["stores"]) == set(roots)


def test_options_are_checked(tmp_path):
    with pytest.raises(SourceOptionError, match="did you mean"):
        rmqsource.explain(str(tmp_path), {"topics": "x"})
