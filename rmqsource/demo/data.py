# SPDX-License-Identifier: Apache-2.0
"""The store that is bundled with the package, and commands to try on it."""

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
    """A store to read, and the broker configuration file with its sizes (empty if none)."""

    path: str
    config: str

    @property
    def options(self) -> dict[str, str]:
        """The source options for reading it."""
        return {"config": self.config} if self.config else {}


def unpack_store(directory: str | Path | None = None) -> DemoStore:
    """Unpack the store that is bundled with the package; its paths are absolute.

    Parameters
    ----------
    directory
        Target directory, created if missing. If None, a new temporary directory, which is not
        removed.
    """
    target = Path(directory or tempfile.mkdtemp(prefix="rocketmq-store-demo-")).resolve()
    target.mkdir(parents=True, exist_ok=True)
    source = resources.files("rmqsource.demo").joinpath("store")  # may be in a zip (--py-files)
    with tarfile.open(fileobj=io.BytesIO(source.joinpath("store.tar.gz").read_bytes())) as packed:
        # Our own archive; the filter avoids a warning of Python 3.12 and 3.13.
        safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        packed.extractall(target, **safe)
    (target / "broker.conf").write_bytes(source.joinpath("broker.conf").read_bytes())
    return DemoStore(str(target / "store"), str(target / "broker.conf"))


def next_commands(store: DemoStore, topic: str, key: str | None) -> list[str]:
    """Return shell commands that work on the store from the current directory."""
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
    """Return a topic or key as a shell word, as JSON if it cannot be shown unchanged."""
    is_plain = text.isprintable() and "," not in text
    return shlex.quote(text if is_plain else json_text([text]))


def _command() -> str:
    """Return the shortest command that starts the command line here."""
    beside = Path(sys.executable).parent / "rocketmq-store"
    found = shutil.which("rocketmq-store")
    if found is not None and Path(found) == beside:
        return "rocketmq-store"
    start = beside if beside.exists() else Path(sys.executable)
    if start.is_relative_to(Path.cwd()):
        start = start.relative_to(Path.cwd())
    return shlex.quote(str(start)) + ("" if beside.exists() else " -m rmqsource.cli")
