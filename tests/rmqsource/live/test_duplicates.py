# SPDX-License-Identifier: Apache-2.0
"""Repeated rows are identified by the property that a write adds to each row."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rmqsource.live.duplicates import RepeatFilter, job_prefix, repeat_values

rows = st.tuples(st.sampled_from(["j:0:0", "j:0:1", "q-1:7:0"]), st.integers(0, 3000))
others = st.sampled_from([None, "", "x", "j:0:0:", "j:0:0:-1", "j:0:0:99999999999", "::::", "a\n"])


@given(st.lists(st.lists(st.one_of(rows.map(lambda r: f"{r[0]}:{r[1]}"), others), max_size=30)))
def test_the_first_of_each_value_stays(batches):
    known = RepeatFilter()
    seen = set()
    for batch in batches:
        kept = known.first_ones(pa.array(batch, pa.string())).tolist()
        for value, keep in zip(batch, kept):
            ours = value is not None and value.count(":") == 3 and value.rsplit(":")[-1].isdigit()
            ours = ours and len(value.rsplit(":")[-1]) < 10
            assert keep == (not ours or value not in seen)
            seen.add(value)


def test_values_of_a_task():
    values = repeat_values(job_prefix("job", 3, 7), 9, 3)
    assert values.to_pylist() == [b"job:3:7:9", b"job:3:7:10", b"job:3:7:11"]
    assert repeat_values("p", 0, 0).to_pylist() == []
