# SPDX-License-Identifier: Apache-2.0
"""The source, registered with the session, and a reader of it."""

from __future__ import annotations

import pytest

import rmqsource


@pytest.fixture
def read(spark):
    """Return ``read(root, **options) -> DataFrame``; a list of roots is loaded as one."""
    rmqsource.register(spark)

    def load(root, schema=None, **options):
        reader = spark.read.format("rocketmq-store")
        reader = reader.options(**options)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.load([str(r) for r in root] if isinstance(root, list) else str(root))

    return load


@pytest.fixture
def pushing_read(pushdown_spark, read):
    """Return the same reader with filter pushdown on, if this Spark supports it."""
    return read
