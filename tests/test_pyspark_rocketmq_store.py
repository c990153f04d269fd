"""The module through which Spark finds the source is safe to import anywhere."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource

import pyspark_rocketmq_store

MODULE = Path(pyspark_rocketmq_store.__file__)

# What a driver whose Python has this module but not the package goes through.
LOOKUP_WITHOUT_THE_PACKAGE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"rmqsource", "store_core"}:
            raise ImportError(f"{name} is missing")

sys.meta_path.insert(0, Missing())
sys.path.insert(0, sys.argv[1])
import pyspark_rocketmq_store
print(pyspark_rocketmq_store.DefaultSource.name())
try:
    pyspark_rocketmq_store.DefaultSource({})
except ImportError as error:
    print(error)
"""


def test_import_needs_pyspark_only_and_use_names_what_is_missing():
    done = subprocess.run(
        [sys.executable, "-c", LOOKUP_WITHOUT_THE_PACKAGE, str(MODULE.parent)],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    name, error = done.stdout.splitlines()
    assert name == "rocketmq-store"
    assert error.startswith("rmqsource")


def test_spark_pickles_the_class_by_reference():
    pickled = cloudpickle.dumps(pyspark_rocketmq_store.DefaultSource)
    assert len(pickled) < 200
    assert cloudpickle.loads(pickled) is pyspark_rocketmq_store.DefaultSource


def test_constructing_gives_the_source_itself(monkeypatch):
    class Source(DataSource):
        pass

    stand_in = types.SimpleNamespace(RocketMQStoreDataSource=Source)
    monkeypatch.setitem(sys.modules, "rmqsource.spark.store_format", stand_in)
    source = pyspark_rocketmq_store.DefaultSource({"path": "/a"})
    assert type(source) is Source
    assert source.options == {"path": "/a"}
