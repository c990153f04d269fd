# SPDX-License-Identifier: Apache-2.0
"""The modules through which Spark finds the sources are safe to import anywhere."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource

import pyspark_rocketmq
import pyspark_rocketmq_store

MODULES = [pyspark_rocketmq, pyspark_rocketmq_store]

# A driver whose Python has such a module but not the package takes these steps.
LOOKUP_WITHOUT_THE_PACKAGE = """
import importlib
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"rmqsource", "store_core"}:
            raise ImportError(f"{name} is missing")

sys.meta_path.insert(0, Missing())
sys.path.insert(0, sys.argv[1])
module = importlib.import_module(sys.argv[2])
print(module.DefaultSource.name())
try:
    module.DefaultSource({})
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("module", "source_name"),
    [(pyspark_rocketmq, "rocketmq"), (pyspark_rocketmq_store, "rocketmq-store")],
    ids=["live", "store"],
)
def test_import_needs_pyspark_only_and_use_names_what_is_missing(module, source_name):
    folder = Path(module.__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", LOOKUP_WITHOUT_THE_PACKAGE, str(folder), module.__name__],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    name, error = done.stdout.splitlines()
    assert name == source_name
    assert error.startswith("rmqsource")


@pytest.mark.parametrize("module", MODULES, ids=["live", "store"])
def test_spark_pickles_the_class_by_reference(module):
    pickled = cloudpickle.dumps(module.DefaultSource)
    assert len(pickled) < 200
    assert cloudpickle.loads(pickled) is module.DefaultSource


@pytest.mark.parametrize(
    ("module", "place", "name", "options"),
    [
        (pyspark_rocketmq, "rmqsource.spark.live_format", "RocketMQDataSource", {"topic": "a"}),
        (
            pyspark_rocketmq_store,
            "rmqsource.spark.store_format",
            "RocketMQStoreDataSource",
            {"path": "/a"},
        ),
    ],
    ids=["live", "store"],
)
def test_constructing_gives_the_source_itself(monkeypatch, module, place, name, options):
    class Source(DataSource):
        pass

    monkeypatch.setitem(sys.modules, place, types.SimpleNamespace(**{name: Source}))
    source = module.DefaultSource(options)
    assert type(source) is Source
    assert source.options == options
