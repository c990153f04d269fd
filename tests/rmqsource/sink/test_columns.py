# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from rmqsource.schema import table_schema
from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.errors import SinkSchemaError


def test_columns_come_in_any_order_and_case():
    columns = resolve_sink_columns([("BODY", "string"), ("Tags", "string"), ("topic", "string")])
    assert columns.index == {"body": 0, "tags": 1, "topic": 2}


def test_all_columns_of_messages_are_accepted_as_read():
    fields = [(f.name, f.dataType.simpleString()) for f in table_schema("messages", "FAILFAST")]
    columns = resolve_sink_columns([*fields, ("properties_raw", "binary")])
    assert "properties_raw" in columns
    assert "commit_log_offset" not in columns


def test_columns_of_nothing_are_absent():
    columns = resolve_sink_columns([("topic", "string"), ("body", "binary"), ("tags", "void")])
    assert "tags" not in columns


@pytest.mark.parametrize("kind", ["varchar(10)", "char(3)", "string collate UTF8_LCASE"])
def test_kinds_of_strings_are_strings(kind):
    assert "topic" in resolve_sink_columns([("topic", kind), ("body", "binary")])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([("topic", "string")], "no column 'body'"),
        ([("body", "binary")], "no column 'topic'"),
        ([("topic", "int"), ("body", "binary")], "'topic' has type int; it must be string"),
        ([("topic", "string"), ("Body", "binary"), ("bodY", "binary")], "appears twice"),
        ([("topic", "string"), ("body", "binary"), ("tag", "string")], "did you mean 'tags'"),
        ([("topic", "string"), ("body", "binary"), ("queue_id", "double")], "type double"),
        ([("body", "void"), ("topic", "string")], "no column 'body'"),
    ],
)
def test_what_is_wrong_is_named(fields, text):
    with pytest.raises(SinkSchemaError, match=text):
        resolve_sink_columns(fields)


def test_a_default_topic_stands_for_the_column():
    assert "topic" not in resolve_sink_columns([("body", "binary")], default_topic="A")
