# SPDX-License-Identifier: Apache-2.0
"""Rows are stored the same, however they are split into batches."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqsource.errors import SourceError
from rmqsource.sink import task
from rmqsource.sink.committing import commit_parts
from rmqsource.sink.task import stage_part
from tests.rmqsource.sink.test_committing import bodies, numbers, plan_for, rows


@pytest.fixture
def _small_limits(monkeypatch):
    monkeypatch.setattr(task, "_JOINED_ROWS", 7)
    monkeypatch.setattr(task, "_JOINED_BYTES", 500)
    monkeypatch.setattr(task, "_SLICE_BYTES", 300)


@pytest.mark.usefixtures("_small_limits")
@given(st.lists(st.integers(0, 12), max_size=12))
def test_batches_of_any_length_are_the_same_rows(lengths):
    whole = rows(0, 200)
    batches, at = [], 0
    for length in lengths:
        batches.append(whole.slice(at, length))
        at += length
    blocks = list(task._blocks(batches))
    assert all(block.num_rows > 0 for block in blocks)
    if at:
        joined = pa.Table.from_batches(blocks).combine_chunks()
        assert joined.equals(pa.Table.from_batches([whole.slice(0, at)]).combine_chunks())
    else:
        assert blocks == []


@pytest.mark.usefixtures("_small_limits")
def test_many_small_batches_and_one_large_one_make_the_same_store(tmp_path):
    whole = rows(0, 50)
    ways = {
        "whole": [whole],
        "single": [whole.slice(at, 1) for at in range(50)],
        "mixed": [whole.slice(0, 0), whole.slice(0, 31), whole.slice(31, 0), whole.slice(31)],
    }
    for name, batches in ways.items():
        plan = plan_for(tmp_path / name, queues=1)
        commit_parts(plan, [stage_part(batches, plan, 0)])
        assert bodies(tmp_path / name) == numbers(range(50))


def test_a_source_that_fails_leaves_no_part(tmp_path):
    plan = plan_for(tmp_path)

    def failing():
        yield rows(0, 5)
        raise SourceError("the source is gone")

    with pytest.raises(SourceError, match="is gone"):
        stage_part(failing(), plan, 0)
    assert not (tmp_path / "commitlog").exists()
