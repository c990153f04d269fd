# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from rmqsource.explore.dead_letter_rows import DEAD_LETTER_COLUMNS, read_dead_letters
from rmqsource.options.source_options import options_for
from tests.golden_store import GoldenStore, golden


def test_dead_letters_are_those_that_the_reader_received(cluster_golden_store: GoldenStore) -> None:
    store = cluster_golden_store
    rows = list(read_dead_letters(options_for(str(store.root), store.options)))
    received = [r for r in store.dump("received") if r["topic"].startswith("%DLQ%")]
    assert len(received) > 1
    assert {row["unique_key"] for row in rows} == {r["msg_id"] for r in received}
    for row in rows:
        assert tuple(row) == DEAD_LETTER_COLUMNS
        assert row["group"].endswith("_retry")
        assert row["topic"] == store.config["topics"]["retry"]
        assert row["tries"] == store.config["retry_max_times"] + 1
        assert "retries of the group failed" in row["why"] or "own limit" in row["why"]
        assert row["body"].startswith(b'{"kind":"retry"')
        first = next(r for r in store.dump("sent") if r["msg_id"] == row["unique_key"])
        assert row["first_message_id"] == first["offset_msg_id"]


def test_none() -> None:
    store = golden("onefile-5x")
    assert list(read_dead_letters(options_for(str(store.root), store.options))) == []
