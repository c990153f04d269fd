# SPDX-License-Identifier: Apache-2.0
"""Table keys: one row for each message and each distinct key of it."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rmqsource.scan.message_batches import explode_keys
from rmqsource.scan.predicate import ScanPredicate

words = st.text(alphabet="abü鍵", min_size=1, max_size=2)
messages = st.lists(
    st.tuples(st.one_of(st.none(), st.lists(words, max_size=4)), st.one_of(st.none(), words)),
    max_size=12,
)


def exploded(rows, found=None, key_equals=None):
    keys = pa.array([row[0] for row in rows], pa.list_(pa.string()))
    unique = pa.array([row[1] for row in rows], pa.string())
    mask = None if found is None else pa.array(found, pa.bool_())
    predicate = ScanPredicate(key_equals=key_equals)
    columns = explode_keys(keys, unique, mask, predicate)
    return list(zip(*(column.to_pylist() for column in columns)))


def expected(rows):
    result = []
    for number, (keys, unique) in enumerate(rows):
        own = list(dict.fromkeys(keys or ()))
        result += [(key, "KEYS", number) for key in own]
        if unique is not None and unique not in own:
            result.append((unique, "UNIQ_KEY", number))
    return result


@given(messages)
def test_rows(rows):
    assert exploded(rows) == expected(rows)


@given(messages, st.data())
def test_only_the_messages_that_were_found(rows, data):
    found = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    assert exploded(rows, found) == [row for row in expected(rows) if found[row[2]]]


@given(messages, st.frozensets(words, max_size=3))
def test_only_the_keys_that_were_asked_for(rows, wanted):
    assert exploded(rows, None, wanted) == [row for row in expected(rows) if row[0] in wanted]


def test_keys_that_no_message_can_have():
    assert exploded([(["a"], "b")], None, frozenset({"\ud800", "a"})) == [("a", "KEYS", 0)]
