# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from rmqsource.errors import SourceSchemaError
from rmqsource.schema import TABLES, resolve_projection, table_schema
from rmqsource.spark_compat import to_arrow_schema

MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
MESSAGE_DDL = (
    "topic string, queue_id int, queue_offset bigint, commit_log_offset bigint, store_size int, "
    "message_id string, unique_key string, keys array<string>, tags string, body binary, "
    "properties map<string,string>, flag int, sys_flag int, body_crc int, reconsume_times int, "
    "born_timestamp timestamp, store_timestamp timestamp, born_host string, store_host string, "
    "prepared_transaction_offset bigint, store string"
)


def ddl(schema):
    return ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in schema.fields)


def schema_of(*columns):
    return StructType([StructField(name, kind, *null) for name, kind, *null in columns])


def refused(match, *columns, table="messages", mode="FAILFAST"):
    with pytest.raises(SourceSchemaError, match=match) as caught:
        resolve_projection(table, mode, schema_of(*columns))
    return str(caught.value)


def test_tables_are_those_documented():
    assert list(TABLES) == [
        "messages",
        "keys",
        "consume_queue",
        "index",
        "segments",
        "topics",
        "queues",
        "consumer_offsets",
        "delayed",
        "timers",
        "transactions",
        "checkpoint",
        "plan",
    ]
    assert ddl(table_schema("messages", "FAILFAST")) == MESSAGE_DDL
    assert ddl(table_schema("keys", "FAILFAST")) == f"key string, key_kind string, {MESSAGE_DDL}"


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("mode", MODES)
def test_every_own_schema_resolves_to_itself(table, mode):
    schema = table_schema(table, mode)
    projection = resolve_projection(table, mode, schema)
    assert list(projection.columns) == schema.fieldNames()
    assert projection.spark_schema == schema
    assert isinstance(to_arrow_schema(schema), pa.Schema)
    assert pickle.loads(pickle.dumps(projection)) == projection
    names = [c.name for c in TABLES[table].columns + TABLES[table].on_demand]
    assert len(set(names)) == len(names)


def test_null_is_said_where_it_is_possible():
    nullable = {f.name for f in table_schema("messages", "FAILFAST").fields if f.nullable}
    assert nullable == {"unique_key", "keys", "tags", "born_timestamp", "store_timestamp"}
    permissive = table_schema("messages", "PERMISSIVE")
    assert permissive.fieldNames()[-1] == "_corrupt_record"
    assert all(f.nullable for f in permissive.fields)
    assert table_schema("queues", "PERMISSIVE") == table_schema("queues", "FAILFAST")


def test_projection_keeps_order_and_spelling():
    asked = schema_of(
        ("BODY", table_schema("messages", "FAILFAST")["body"].dataType),
        ("Topic", StringType(), False),
    )
    projection = resolve_projection("messages", "FAILFAST", asked)
    assert projection.columns == ("body", "topic")
    assert projection.spark_schema.fieldNames() == ["BODY", "Topic"]
    assert to_arrow_schema(projection.spark_schema) == pa.schema(
        [pa.field("BODY", pa.binary()), pa.field("Topic", pa.string(), nullable=False)]
    )


def test_on_demand_column():
    assert "properties_raw" not in table_schema("messages", "FAILFAST").fieldNames()
    binary = table_schema("messages", "FAILFAST")["body"].dataType
    for table in ("messages", "keys"):
        asked = schema_of(("properties_raw", binary))
        assert resolve_projection(table, "FAILFAST", asked).columns == ("properties_raw",)
    refused("properties_raw", ("properties_raw", binary), table="queues")


def test_unknown_columns_list_what_exists():
    text = refused("did you mean 'queue_id'", ("queueid", IntegerType()))
    assert "store_timestamp timestamp" in text
    refused("queue_id int", ("zzz", IntegerType()))
    refused("names no column")


def test_duplicates():
    refused(
        "'TOPIC' appears twice|'topic' appears twice",
        ("topic", StringType()),
        ("TOPIC", StringType()),
    )


@pytest.mark.parametrize(
    ("name", "kind", "match"),
    [
        ("queue_id", LongType(), "is of type int; found bigint"),
        ("store_timestamp", TimestampNTZType(), "found timestamp_ntz"),
        ("keys", StringType(), "array<string>; found string"),
        ("keys", ArrayType(StringType(), False), "NOT NULL elements"),
        ("properties", MapType(StringType(), StringType(), False), "NOT NULL elements"),
        ("topic", StringType("UTF8_LCASE"), "collate"),
    ],
    ids=str,
)
def test_wrong_types(name, kind, match):
    refused(match, (name, kind))


def test_not_null():
    refused("drop NOT NULL", ("tags", StringType(), False))
    damaged = (("topic", StringType(), False), ("_corrupt_record", StringType()))
    refused("rows of _corrupt_record", *damaged, mode="PERMISSIVE")
    asked = schema_of(damaged[0])
    assert resolve_projection("messages", "PERMISSIVE", asked).columns == ("topic",)


def test_corrupt_record_needs_its_mode():
    column = ("_corrupt_record", StringType())
    refused("mode=PERMISSIVE; mode is FAILFAST", column)
    refused("there is no|exists only in tables", column, mode="PERMISSIVE", table="queues")
    assert resolve_projection("keys", "PERMISSIVE", schema_of(column)).columns == (column[0],)
