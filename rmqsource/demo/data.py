"""The store that comes with the package, and what to try with it."""

from __future__ import annotations

import importlib.util
import io
import shlex
import shutil
import sys
import tarfile
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from rmqsource.extras import install_hint
from rmqsource.safe_text import json_text


class DemoStore(NamedTuple):
    """A store to look at, and the broker configuration file that names its sizes, if any."""

    path: str
    config: str

    @property
    def options(self) -> dict[str, str]:
        """The options with which the source reads it."""
        return {"config": self.config} if self.config else {}


def unpack_store(directory: str | Path | None = None) -> DemoStore:
    """Unpack the store that comes with the package; its paths are absolute.

    Parameters
    ----------
    directory
        Where to; made if missing. None: a new directory among the temporary ones, which is kept.
    """
    target = Path(directory or tempfile.mkdtemp(prefix="rocketmq-store-demo-")).resolve()
    target.mkdir(parents=True, exist_ok=True)
    source = resources.files("rmqsource.demo").joinpath("store")  # may lie in a zip (--py-files)
    with tarfile.open(fileobj=io.BytesIO(source.joinpath("store.tar.gz").read_bytes())) as packed:
        # Our own archive; the filter keeps Python 3.12 to 3.14 from warning or asking.
        safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        packed.extractall(target, **safe)
    (target / "broker.conf").write_bytes(source.joinpath("broker.conf").read_bytes())
    return DemoStore(str(target / "store"), str(target / "broker.conf"))


def next_commands(store: DemoStore, topic: str, key: str | None) -> list[str]:
    """Return shell commands that work on the store from the present directory."""
    if importlib.util.find_spec("typer") is None:
        return [f"# for the command rocketmq-store: {install_hint('cli')}"]
    path = shlex.quote(store.path)
    config = f" --config {shlex.quote(store.config)}" if store.config else ""
    command = _command()
    of_topic = f"--topic {_name(topic)}"
    commands = [
        f"{command} info {path}",
        f"{command} messages {path} {of_topic} --limit 5",
        f"{command} messages {path} {of_topic} --format json > messages.jsonl",
    ]
    if key is not None:
        wanted = f"{of_topic} --key {_name(key)}"
        commands.append(f"{command} messages {path} {wanted}{config}")
    report = f"{command} report {path} -o report.html{config}"
    has_plots = all(map(importlib.util.find_spec, ("pandas", "matplotlib")))
    advice = "" if has_plots else f"  # {install_hint('notebook')}"
    return [*commands, report + advice, f"{command} --help"]


def python_example(store: DemoStore, topic: str) -> str:
    """Return a Python program that reads a topic of the store."""
    return f"""\
import os, sys
from pyspark.sql import SparkSession
import rmqsource

os.environ["PYSPARK_PYTHON"] = sys.executable  # the Python that has the package
spark = SparkSession.builder.master("local[2]").getOrCreate()
rmqsource.register(spark)
messages = spark.read.format("rocketmq-store").option("topic", {topic!r}).load({store.path!r})
messages.groupBy("tags").count().show()"""


def _name(text: str) -> str:
    """Return a topic or key as a shell takes it, as JSON where it cannot be shown as it is."""
    is_plain = text.isprintable() and "," not in text
    return shlex.quote(text if is_plain else json_text([text]))


def _command() -> str:
    """Return what starts the command line here, as short as it can be."""
    beside = Path(sys.executable).parent / "rocketmq-store"
    found = shutil.which("rocketmq-store")
    if found is not None and Path(found) == beside:
        return "rocketmq-store"
    start = beside if beside.exists() else Path(sys.executable)
    if start.is_relative_to(Path.cwd()):
        start = start.relative_to(Path.cwd())
    return shlex.quote(str(start)) + ("" if beside.exists() else " -m rmqsource.cli")
