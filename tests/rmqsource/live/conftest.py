# SPDX-License-Identifier: Apache-2.0
"""The source ``rocketmq``, registered with the session."""

from __future__ import annotations

import pytest

import rmqsource


@pytest.fixture
def live_read(spark):
    """Return ``live_read(options, schema=None) -> DataFrame``."""
    rmqsource.register(spark)

    def load(options, schema=None):
        reader = spark.read.format("rocketmq").options(**options)
        return (reader if schema is None else reader.schema(schema)).load()

    return load
