# SPDX-License-Identifier: Apache-2.0
"""Counters of open half messages, in the file that a broker writes."""

from __future__ import annotations

import json

import pytest

from store_core.files.file_writing import replace_file
from store_core.transaction.transaction_metrics import TransactionMetrics
from tests.golden_store import golden

_FILE = "config/transactionMetrics"


@pytest.mark.parametrize("name", ["cluster-5x", "cluster-5x-ext"])
def test_a_brokers_file_is_read_and_written_alike(name, tmp_path):
    text = (golden(name).root / _FILE).read_text()
    (tmp_path / "config").mkdir()
    (tmp_path / _FILE).write_text(text)
    metrics = TransactionMetrics(str(tmp_path))
    metrics.load()
    (topic,) = metrics.counts()
    assert metrics.counts() == {topic: 5}
    version = json.loads(text)["dataVersion"]
    assert not metrics.persist(replace_file)
    metrics.add({topic: 0}, version["timestamp"])
    assert metrics.persist(replace_file)
    assert (tmp_path / _FILE).read_text() == text


def test_each_message_counts_in_the_version(tmp_path):
    metrics = TransactionMetrics(str(tmp_path))
    metrics.load()
    metrics.add({"Orders": 3}, 7)
    metrics.add({"Orders": -2, "Others": 1}, 9)
    metrics.persist(replace_file)
    content = json.loads((tmp_path / _FILE).read_text())
    assert content == {
        "dataVersion": {"counter": 6, "stateVersion": 0, "timestamp": 9},
        "transactionCount": {
            "Orders": {"count": 1, "timeStamp": 9},
            "Others": {"count": 1, "timeStamp": 9},
        },
    }


def test_the_backup_counts_where_the_file_is_torn(tmp_path, caplog):
    metrics = TransactionMetrics(str(tmp_path))
    metrics.add({"Orders": 3}, 7)
    metrics.persist(replace_file)
    path = tmp_path / _FILE
    path.rename(path.with_name("transactionMetrics.bak"))
    path.write_text('{"dataVersion":')
    again = TransactionMetrics(str(tmp_path))
    again.load()
    assert again.counts() == {"Orders": 3}
    assert "is ignored" in caplog.text
