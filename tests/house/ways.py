# SPDX-License-Identifier: Apache-2.0
"""Figures of running code: files that an act enters, modules that it loads, and their import time.

Each act runs in a process of its own, on a small store that another process has made, so that
nothing is cached when it starts.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.committing import commit_parts
from rmqsource.sink.options import parse_sink_options
from rmqsource.sink.prepared_write import plan_write
from rmqsource.sink.task import stage_part
from rmqsource.spark.store_format import RocketMQStoreDataSource
from store_core import Message, MessageStore, MessageStoreConfig, StoreSnapshot
from tests.hostile.base_stores import FACTORY_SIZES
from tests.hostile.cases import run_cli
from tests.house.counts import PACKAGES, ROOT, Counts, Rows
from tests.rmqsource.sink.support import TYPES, batch_of
from tests.store_factory import small_store

_STORE = "from store_core import MessageStore"
_TASK = "read of a Spark task"
_RUNS = 5
_FOLDERS = tuple(f"{ROOT / package}/" for package in PACKAGES)
_READ = """
import pickle, sys
from pathlib import Path
reader, partition = pickle.loads(Path(sys.argv[1], "task").read_bytes())
batches = list(reader.read(partition))
"""
_TIMED_IMPORT = """
import importlib, sys, time
before, timed = (names.split() for names in sys.argv[1:])
for name in before:
    importlib.import_module(name)
start = time.process_time()
for name in timed:
    importlib.import_module(name)
print(time.process_time() - start)
"""


class Tracer:
    """Collects the files of the product in which a function is called inside a ``with`` block.

    Code that runs because a module is imported does not count; threads count unless excluded.
    """

    def __init__(self, *, threads: bool = True) -> None:
        self.files: set[str] = set()
        self._threads = threads

    def __enter__(self) -> None:
        if self._threads:
            threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        self.files = set(self.files)  # threads that are still running add to the old set

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event != "call" or name in self.files or not name.startswith(_FOLDERS):
            return
        if not _is_import(frame):
            self.files.add(name)


def _is_import(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and code.co_filename.startswith(_FOLDERS):
            return True
        frame = frame.f_back
    return False


class Act(NamedTuple):
    """One process prepares the act in an empty directory; another runs it there under a tracer."""

    prepare: Callable[[Path], object]
    run: Callable[[Path, Tracer], None]
    threads: bool = True


def _whole(place: Path) -> None:
    small_store(place / "store").write()


def _crashed(place: Path) -> None:
    small_store(place / "store").write(abort=b"1")


def _config(place: Path) -> MessageStoreConfig:
    return MessageStoreConfig(
        store_path_root_dir=str(place / "store"),
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=320,
        max_hash_slot_num=8,
        max_index_num=64,
    )


def _recover(place: Path, tracer: Tracer) -> None:
    """Trace `MessageStore.load` alone; the log is whole, so that nothing is cut off."""
    store = MessageStore(_config(place))
    with tracer:
        store.load()
    store.shutdown()


def _stage(place: Path) -> None:
    """Stage three rows and pickle the plan and the part that Spark hands to the committer."""
    _whole(place)
    rows = batch_of(topic=["New", "New", "TopicA"], body=[b"1", b"2", b"3"], keys=[["k"]] * 3)
    columns = resolve_sink_columns([(name, TYPES[name][0]) for name in rows.schema.names])
    plan = plan_write(parse_sink_options({"path": str(place / "store"), **FACTORY_SIZES}), columns)
    (place / "commit").write_bytes(pickle.dumps((plan, [stage_part([rows], plan, 0)])))


def _commit(place: Path, tracer: Tracer) -> None:
    plan, parts = pickle.loads((place / "commit").read_bytes())
    with tracer:
        commit_parts(plan, parts, application="app", version=1)


def _messages(place: Path, tracer: Tracer) -> None:
    with tracer:
        answer = run_cli("messages", place / "store")
    assert answer.code == 0, answer.err


def _plan_read(place: Path) -> None:
    """Plan a read and pickle the reader and the partition that Spark hands to a task."""
    _whole(place)
    source = RocketMQStoreDataSource({"path": str(place / "store"), **FACTORY_SIZES})
    reader = source.reader(source.schema())
    (place / "task").write_bytes(pickle.dumps((reader, reader.partitions()[0])))


def _read_task(place: Path, tracer: Tracer) -> None:
    reader, partition = pickle.loads((place / "task").read_bytes())
    with tracer:
        rows = sum(batch.num_rows for batch in reader.read(partition))
    assert rows


def _find(place: Path, tracer: Tracer) -> None:
    """Trace the opening of a snapshot as well."""
    config = _config(place)
    with tracer, StoreSnapshot(place / "store", config) as snapshot:
        messages = snapshot.find_messages("TopicA", ["k7"])
    assert messages


def _put_again(place: Path, tracer: Tracer) -> None:
    """Trace the second of two puts, its `Message` included, in the thread that calls."""
    config = MessageStoreConfig(
        store_path_root_dir=str(place / "store"), mapped_file_size_commit_log=1 << 20
    )
    with MessageStore(config) as store:
        store.put_message(Message("TopicA", b"body", queue_id=0, keys=["k1"], tags="tag"))
        with tracer:
            store.put_message(Message("TopicA", b"body", queue_id=0, keys=["k2"], tags="tag"))


ACTS = {
    "crash recovery": Act(_crashed, _recover),
    "commit of df.write": Act(_stage, _commit),
    "rocketmq-store messages": Act(_whole, _messages),
    _TASK: Act(_plan_read, _read_task),
    "snapshot with one find_messages": Act(_whole, _find),
    "warm put": Act(lambda _: None, _put_again, threads=False),
}


def measure_all() -> Counts:
    """Return the files that each act enters, the modules that are loaded, and their time."""
    entered = {name: files_entered(name) for name in ACTS}
    loaded = {_STORE: _loaded(f"import sys; {_STORE}"), _TASK: loaded_by_task()}
    figures: dict[str, Rows] = {
        "files entered at run time": {name: len(files) for name, files in entered.items()},
        "modules loaded": {name: len(modules) for name, modules in loaded.items()},
        "CPU time of their import, ms": {
            _STORE: _import_ms("", loaded[_STORE]),
            _TASK: _import_ms("numpy pyarrow pyspark.sql.datasource", loaded[_TASK]),
        },
    }
    return Counts(figures, {f"files entered: {name}": files for name, files in entered.items()})


def files_entered(name: str) -> list[str]:
    """Return the files of the product that an act enters, relative to the repository."""
    with tempfile.TemporaryDirectory() as place:
        ACTS[name].prepare(Path(place))
        output = _python("-m", "tests.house.ways", name, place)
    return [str(file) for file in json.loads(output.splitlines()[-1])]


def loaded_by_task() -> list[str]:
    """Return the modules of the product that a process loads in which Spark runs one task."""
    with tempfile.TemporaryDirectory() as place:
        _plan_read(Path(place))
        return _loaded(_READ, place)


def _loaded(code: str, *arguments: str) -> list[str]:
    """Return the modules of the product that some code loads, in the order of loading."""
    names = _python("-c", code + "\nprint(*sys.modules)", *arguments).split()
    return [name for name in names if name.partition(".")[0] in PACKAGES]


def _import_ms(before: str, modules: list[str]) -> float:
    """Return the shortest of five import times, measured after other modules are loaded.

    CPU time, because other jobs on the machine disturb it less than elapsed time.
    """
    run = ("-c", _TIMED_IMPORT, before, " ".join(modules))
    return min(float(_python(*run)) for _ in range(_RUNS)) * 1000


def _python(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout


def _run_act(name: str, place: str) -> None:
    tracer = Tracer(threads=ACTS[name].threads)
    ACTS[name].run(Path(place), tracer)
    print(json.dumps(sorted(str(Path(file).relative_to(ROOT)) for file in tracer.files)))


if __name__ == "__main__":
    _run_act(*sys.argv[1:])
