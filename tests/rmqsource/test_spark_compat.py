# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyspark
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader
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


@pytest.mark.parametrize(
    ("release", "has_limit", "sound"),
    [
        ("4.0.0", False, False),
        ("4.1.4", False, False),
        ("4.3.0", False, False),
        ("4.3.7", True, False),
        ("4.4.0", False, False),
        ("4.4.0.dev1", True, True),
        ("4.10.0", True, True),
        ("5.0.0", True, True),
    ],
)
def test_filters_are_taken_only_where_spark_keeps_reads_apart(
    monkeypatch, release, has_limit, sound
):
    monkeypatch.setattr(pyspark, "__version__", release)
    monkeypatch.delattr(DataSourceReader, "pushLimit", raising=False)
    if has_limit:
        monkeypatch.setattr(DataSourceReader, "pushLimit", None, raising=False)
    monkeypatch.setitem(sys.modules, _WORKER, sys)
    assert spark_compat.may_push_filters() == sound
    monkeypatch.delitem(sys.modules, _WORKER)
    assert not spark_compat.may_push_filters(), "pushdown is off"


@pytest.mark.skipif(not hasattr(datasource, "EqualTo"), reason="Spark 4.0 has no filters")
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
        "import rmqsource.errors, rmqsource.options.offsets, rmqsource.tables\n"
        "from rmqsource.options.source_options import parse_options\n"
        "from rmqsource.scan.predicate import from_options\n"
        "assert from_options(parse_options({'path': 'x', 'topic': 'a'})).topics == {'a'}\n"
    )
    subprocess.run([sys.executable, "-B", "-c", code], check=True)


def test_a_spark_that_cannot_be_asked_knows_no_source():
    class Without:
        def sessionState(self):
            raise Py4JError("method dataSourceManager does not exist")

    assert not spark_compat._is_known(SimpleNamespace(_jsparkSession=Without()), "a")
    assert not spark_compat._is_known(SimpleNamespace(), "a")
