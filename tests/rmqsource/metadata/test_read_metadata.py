# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pyarrow as pa
import pytest

from rmqsource.metadata import METADATA_TABLES, read_metadata
from rmqsource.metadata.columns import table_part
from rmqsource.options.source_options import SourceOptions
from rmqsource.tables import TABLES
from store_core.codec.message_batch_codec import timestamp_type
from tests.golden_store import GoldenStore, golden
from tests.rmqsource.metadata.support import rows_of, snapshot_of

ARROW_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": timestamp_type(),
    "array<string>": pa.list_(pa.string()),
}


def test_batches_have_the_declared_columns(golden_store: GoldenStore) -> None:
    with snapshot_of(golden_store) as snapshot:
        for table in METADATA_TABLES:
            options = SourceOptions(paths=("p",), mode="DROPMALFORMED")  # one store is torn
            for batch in read_metadata(table, snapshot, options):
                assert list(batch) == [column.name for column in TABLES[table].columns]
                for column in TABLES[table].columns:
                    assert batch[column.name].type == ARROW_TYPES[column.type]
                    assert column.nullable or batch[column.name].null_count == 0


@pytest.mark.parametrize("table", ["consume_queue", "index", "segments", "topics", "queues"])
def test_batches_are_bounded_and_hold_all_rows_in_order(table: str) -> None:
    with snapshot_of(golden("classic-5x")) as snapshot:
        whole = rows_of(snapshot, table)
        options = SourceOptions(paths=("p",), batch_rows=7)
        batches = list(read_metadata(table, snapshot, options))
        assert {len(batch["store"]) for batch in batches} <= set(range(1, 8))
        assert rows_of(snapshot, table, batch_rows=7) == whole


def test_small_parts_are_put_together() -> None:
    with snapshot_of(golden("classic-5x")) as snapshot:
        batches = list(read_metadata("consume_queue", snapshot, SourceOptions(paths=("p",))))
    assert len(batches) == 1


def test_names_that_are_no_unicode_become_question_marks() -> None:
    part = table_part(
        "topics",
        "store\udcff",
        1,
        topic=["a\udcffb"],
        queues=[0],
        messages=[0],
        bytes=[None],
        min_store_timestamp=[None],
        max_store_timestamp=[2**62],
        kind=["normal"],
        compacted_messages=[None],
    )
    (row,) = part.to_pylist()
    assert (row["topic"], row["store"]) == ("a?b", "store?")
    assert (row["bytes"], row["max_store_timestamp"]) == (None, None)
