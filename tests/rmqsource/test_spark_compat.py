from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql import datasource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from rmqsource import spark_compat

_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
pushdown = pytest.mark.skipif(
    not spark_compat.supports_filter_pushdown(), reason="Spark 4.0 has no filters"
)


def test_pushdown_is_known_by_its_worker(monkeypatch):
    monkeypatch.delitem(sys.modules, _WORKER, raising=False)
    assert not spark_compat.in_pushdown_worker()
    monkeypatch.setitem(sys.modules, _WORKER, sys)
    assert spark_compat.in_pushdown_worker()


def test_pushdown_support_agrees_with_the_filter_classes():
    assert spark_compat.supports_filter_pushdown() == hasattr(datasource, "EqualTo")


@pushdown
def test_operators():
    column = ("topic",)
    assert spark_compat.filter_operator(datasource.EqualTo(column, "a")) == "="
    assert spark_compat.filter_operator(datasource.In(column, ("a",))) == "in"
    assert spark_compat.filter_operator(datasource.GreaterThanOrEqual(column, 1)) == ">="
    assert spark_compat.filter_operator(datasource.IsNotNull(column)) == "is not null"
    assert spark_compat.filter_operator(datasource.IsNull(column)) is None
    negated = datasource.Not(datasource.EqualTo(column, "a"))
    assert spark_compat.filter_operator(negated) is None


def test_arrow_schema_is_what_spark_compares_with():
    schema = (
        StructType()
        .add("t", TimestampType())
        .add("b", BinaryType(), nullable=False)
        .add("a", ArrayType(StringType()))
        .add("m", MapType(StringType(), StringType()))
    )
    assert spark_compat.to_arrow_schema(schema) == pa.schema(
        [
            pa.field("t", pa.timestamp("us", "UTC")),
            pa.field("b", pa.binary(), nullable=False),
            pa.field("a", pa.list_(pa.string())),
            pa.field("m", pa.map_(pa.string(), pa.string())),
        ]
    )


def test_the_rest_works_without_spark():
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import rmqsource.errors, rmqsource.offsets, rmqsource.tables\n"
        "from rmqsource.options import parse_options\n"
        "from rmqsource.predicate import from_options\n"
        "assert from_options(parse_options({'path': 'x', 'topic': 'a'})).topics == {'a'}\n"
    )
    subprocess.run([sys.executable, "-B", "-c", code], check=True)
