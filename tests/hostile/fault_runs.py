# SPDX-License-Identifier: Apache-2.0
"""Every command over a small store, with one failing call: its output, and the store afterwards.

A fault may end a command. But there must be no traceback, exit code 0 requires the complete answer,
and it must be possible to run the command again when the disk works.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import random
import re
import shutil
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from rmqsource.cli.read import read_table
from rmqsource.errors import SourceError
from rmqsource.options.source_options import parse_options
from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.committing import commit_parts
from rmqsource.sink.options import parse_sink_options
from rmqsource.sink.prepared_write import plan_write
from rmqsource.sink.task import stage_part
from rmqsource.tables import TABLES
from store_core import Message, MessageStore, MessageStoreConfig
from store_core.errors import StoreError
from tests.hostile.base_stores import FACTORY_SIZES
from tests.hostile.cases import EXIT_CODES, run_cli
from tests.hostile.faults import Call, FaultyDisk, codes_of
from tests.hostile.spark_session import commands_share_it, session
from tests.rmqsource.reading import name_queues, read_rows
from tests.rmqsource.sink.support import TYPES, batch_of
from tests.store_core.crash.by_hand import dispatch_all, without_threads
from tests.store_factory import small_store

_OWN = (SourceError, StoreError)
_CONFIG = "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=320\nmaxHashSlotNum=8\n"
_CONFIG += "maxIndexNum=64\n"
_CASE = "case-x"
_FORGOTTEN = "it is treated as missing here"
"""A file of settings cannot be read: the docs say that an answer is given without it."""
_CHANGING = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z?|/[^ \"',:]*/case-\w+")


class Ended(NamedTuple):
    """How a command ended: exit code (0 is good), answer and output."""

    code: int
    answer: Any
    said: str


@dataclass(frozen=True)
class Scenario:
    """A command over a store.

    Attributes
    ----------
    prepare
        Makes the store below a directory.
    run
        Runs the command.
    writes
        It may change the store; then ``judge`` returns what must be in the store afterwards.
    """

    name: str
    prepare: Callable[[Path], None]
    run: Callable[[Path], Ended]
    writes: bool = False
    judge: Callable[[Path], Any] = lambda _: None
    admits: str = "nothing that an answer has"
    """An answer with this text may differ: the text reports that a file cannot be used."""
    uses_spark: bool = False
    """It uses the Spark session of this process; only the driver's own calls fail."""


def _whole(place: Path) -> None:
    _store(place, 24)


def _store(place: Path, count: int, **how: Any) -> None:
    factory = small_store(place / "store", count)
    if how.pop("torn", False):
        at = len(factory.queues["TopicA", 0])
        factory.add("TopicA", b"not dispatched", dispatched=False, queue_offset=at)
        factory.add_bytes(b"\0\0\1\0half a record")
    factory.write(**how)
    name_queues(place / "store")
    groups = {"offsetTable": {"TopicA@group": {"0": 3, "1": 2}}}
    (place / "store" / "config" / "consumerOffset.json").write_text(json.dumps(groups))
    (place / "broker.conf").write_text(_CONFIG)


def _crashed(place: Path) -> None:
    _store(place, 24, torn=True, abort=b"1")


def _damaged(place: Path) -> None:
    """A record in the middle is damaged: ``recover --cut`` cuts there, salvage leaves it out."""
    _store(place, 24, abort=b"1")
    with (place / "store" / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff" * 20)


def _with_leftovers(place: Path) -> None:
    _store(place, 6)
    job = place / "store" / "_staging" / "0123456789abcdef0123456789abcdef"
    job.mkdir(parents=True)
    for name in (f"part-000000-{'0' * 32}.records", f"part-000000-{'0' * 32}.rows"):
        (job / name).write_bytes(b"x" * 100)
        os.utime(job / name, (1e9, 1e9))
    os.utime(job, (1e9, 1e9))


def _two(place: Path) -> None:
    _whole(place)
    shutil.copytree(place / "store", place / "other")


def _cli(*arguments: str, config: bool = True) -> Callable[[Path], Ended]:
    def run(place: Path) -> Ended:
        given = [a.replace("@", str(place)) for a in arguments]
        extra = ["--config", str(place / "broker.conf")] if config else []
        answer = run_cli(*given, *extra)
        return Ended(answer.code, _CHANGING.sub("…", answer.out), answer.err + answer.out)

    return run


def _own(run: Callable[[Path], Any]) -> Callable[[Path], Ended]:
    """Turn errors of the project into an end with code 1."""

    def guarded(place: Path) -> Ended:
        try:
            return Ended(0, run(place), "")
        except _OWN as err:
            return Ended(1, None, str(err))

    return guarded


@_own
def _tables(place: Path) -> Any:
    options = {**FACTORY_SIZES, "path": str(place / "store")}
    found = [
        {name: column.to_pylist() for name, column in batch.items()}
        for table in TABLES
        if table not in {"messages", "keys", "plan"}
        for batch in read_table(table, parse_options({**options, "table": table}))
    ]
    return _CHANGING.sub("…", repr(found))


@_own
def _reads(place: Path) -> Any:
    selections: list[dict[str, str]] = [
        {"topic": "TopicA"},
        {"topic": "TopicB", "queueId": "1"},
        {"topic": "TopicA", "keys": "k7"},
        {"table": "keys", "topic": "TopicA"},
        {"startingTimestamp": "1700000010000"},
    ]
    columns = ("commit_log_offset", "body")
    return [read_rows(place / "store", columns, **one, **FACTORY_SIZES) for one in selections]


@_own
def _put(place: Path) -> Any:
    """Put eight messages; note each acknowledged one, even if a later call fails."""
    config = MessageStoreConfig(
        store_path_root_dir=str(place / "store"),
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=320,
        max_hash_slot_num=8,
        max_index_num=64,
        flush_disk_type="SYNC_FLUSH",
    )
    acknowledged = _acknowledged(place)
    with without_threads():
        store = MessageStore(config)
        try:
            store.load()
            store.start()
            for number in range(8):
                body = b"put %d " % number * 40
                done = store.put_message(Message("Put", body, queue_id=number % 2, keys=["p"]))
                if done.status.name == "PUT_OK":
                    with acknowledged.open("ab") as file:
                        file.write(body + b"\n")
                dispatch_all(store)
        finally:
            store.shutdown()
    return None


def _write(place: Path) -> Ended:
    """Run a job with a version: written again after an error, it must be stored once."""
    given = {"path": str(place / "store"), **FACTORY_SIZES}
    names = ("topic", "body", "keys")
    rows = batch_of(
        topic=["Put", "Put", "TopicA"],
        body=[b"w1 " * 600, b"w2", b"w3"],
        keys=[["w1"], ["w2"], ["w3"]],
    )
    try:
        columns = resolve_sink_columns([(name, TYPES[name][0]) for name in names])
        plan = plan_write(parse_sink_options(given), columns)
        part = stage_part([rows], plan, 0)
        commit_parts(plan, [part], application="app", version=1)
    except _OWN as err:
        return Ended(1, None, str(err))
    return Ended(0, None, "")


def _rows(place: Path, name: str = "store") -> Any:
    """Return the content of a store, and the findings of `check`."""
    columns = ("topic", "queue_id", "queue_offset", "body")
    rows = read_rows(place / name, columns, **FACTORY_SIZES)
    answer = run_cli("check", place / name, "--format", "json", "--config", place / "broker.conf")
    found = json.loads(answer.out)
    problems = sorted({f["kind"] for f in found["findings"] if f["severity"] != "information"})
    return sorted((r["topic"], r["queue_id"], r["queue_offset"], r["body"]) for r in rows), problems


def _keyed_rows(place: Path) -> Any:
    rows, problems = _rows(place)
    keyed = read_rows(place / "store", ("body",), topic="Put", keys="w1,p", **FACTORY_SIZES)
    return rows, problems, len(keyed) > 0


def _put_rows(place: Path) -> Any:
    rows, problems = _rows(place)
    bodies = [row[3] for row in rows if row[0] == "Put"]
    acknowledged = _acknowledged(place).read_bytes().split(b"\n")[:-1]
    missing = [body for body in acknowledged if acknowledged.count(body) > bodies.count(body)]
    return missing, problems


def _acknowledged(place: Path) -> Path:
    """Return a file outside the disk that fails."""
    return place.with_name("acknowledged")


def _salvaged(place: Path) -> Any:
    return _rows(place, "salvaged")


def _left(place: Path) -> Any:
    staging = place / "store" / "_staging"
    return sorted(os.listdir(staging)) if staging.exists() else []


def _then(run: Callable[[Path], Ended], name: str) -> Callable[[Path], Ended]:
    """Run a command that makes something new; if it was already made, all is well."""

    def again(place: Path) -> Ended:
        if os.path.exists(place / name):  # returns False where the disk fails
            return Ended(0, None, "")
        return run(place)

    return again


def _with_spark(prepare: Callable[[Path], None]) -> Callable[[Path], None]:
    """Start the Spark session, once in a process, before a disk fails."""

    def prepared(place: Path) -> None:
        session()
        prepare(place)

    return prepared


def _sharing(run: Callable[[Path], Ended]) -> Callable[[Path], Ended]:
    """Let the command use that session."""

    def shared(place: Path) -> Ended:
        with commands_share_it():
            return run(place)

    return shared


def _and_export(place: Path) -> None:
    _whole(place)
    with commands_share_it():
        answer = run_cli("export", place / "store", "-o", place / "exported", *_config(place))
    assert answer.code == 0, answer.err


def _config(place: Path) -> tuple[str, str]:
    return "--config", str(place / "broker.conf")


def _exported(place: Path) -> Any:
    files = sorted((place / "exported").glob("part-*"))
    return sorted(row["body"] for path in files for row in pq.read_table(path).to_pylist())


def _unless_filled(run: Callable[[Path], Ended]) -> Callable[[Path], Ended]:
    """Run a command that fills a new store, unless the store already has rows."""

    def filled(place: Path) -> Ended:
        if os.path.exists(place / "filled") and read_rows(place / "filled", ("body",)):
            return Ended(0, None, "")
        return run(place)

    return filled


def _filled(place: Path) -> Any:
    return _rows(place, "filled")


_NEW_STORE = tuple(
    text for line in (*_CONFIG.split(), "compatibility=5") for text in ("--write-option", line)
)
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "info",
            _whole,
            _cli("info", "@/store", "--format", "json"),
            admits='"index_files_unusable": 1',
        ),
        Scenario("topics", _whole, _cli("topics", "@/store", "--format", "json")),
        Scenario("messages", _whole, _cli("messages", "@/store", "--format", "json")),
        Scenario(
            "messages by key",
            _whole,
            _cli("messages", "@/store", "--topic", "TopicA", "--key", "k7", "--format", "json"),
        ),
        Scenario("messages of a crashed store", _crashed, _cli("messages", "@/store")),
        Scenario("check", _whole, _cli("check", "@/store", "--format", "json")),
        Scenario("trace", _whole, _cli("trace", "@/store", "--key", "k7", "--format", "json")),
        Scenario("diff", _two, _cli("diff", "@/store", "@/other", "--format", "json")),
        Scenario(
            "dry run",
            _crashed,
            _cli("recover", "@/store", "--dry-run", "--format", "json"),
            admits='"index_files_dropped": ["',
        ),
        Scenario("tables", _whole, _tables),
        Scenario("reads", _whole, _reads),
        Scenario("recover", _crashed, _cli("recover", "@/store"), True, _rows),
        Scenario("recover --cut", _damaged, _cli("recover", "@/store", "--cut"), True, _rows),
        Scenario("rebuild-queues", _whole, _cli("rebuild-queues", "@/store"), True, _rows),
        Scenario("rebuild-index", _whole, _cli("rebuild-index", "@/store"), True, _rows),
        Scenario(
            "salvage",
            _damaged,
            _then(_cli("salvage", "@/store", "@/salvaged"), "salvaged"),
            True,
            _salvaged,
        ),
        Scenario(
            "clean-staging",
            _with_leftovers,
            _cli("clean-staging", "@/store", "--older-than", "0", config=False),
            True,
            _left,
        ),
        Scenario("put", _whole, _put, True, _put_rows),
        Scenario("write", _whole, _write, True, _keyed_rows),
        Scenario("write to a crashed store", _crashed, _write, True, _keyed_rows),
        Scenario(
            "report",
            _whole,
            _cli("report", "@/store", "-o", "@/report", "--format", "json"),
        ),
        Scenario(
            "export",
            _with_spark(_whole),
            _sharing(_then(_cli("export", "@/store", "-o", "@/exported"), "exported")),
            True,
            _exported,
            uses_spark=True,
        ),
        Scenario(
            "copy",
            _with_spark(_whole),
            _sharing(_unless_filled(_cli("copy", "@/store", "@/filled", *_NEW_STORE))),
            True,
            _filled,
            uses_spark=True,
        ),
        Scenario(
            "import",
            _with_spark(_and_export),
            _sharing(
                _unless_filled(_cli("import", "@/exported", "@/filled", *_NEW_STORE, config=False))
            ),
            True,
            _filled,
            uses_spark=True,
        ),
    )
}


@dataclass
class Fault:
    """Which call of which command failed, how, and what was wrong then; empty if nothing was."""

    scenario: str
    number: int
    code: int
    call: Call | None = None
    problem: str = ""

    def __str__(self) -> str:
        call = f"{self.call.name} of {self.call.path}" if self.call else "no call"
        what = errno.errorcode.get(self.code, str(self.code))
        return f"{self.scenario}, call {self.number}, {call}: {what}: {self.problem}"


def calls_of(scenario: Scenario, place: Path) -> list[Call]:
    """Return the calls of a command that runs undisturbed."""
    scenario.prepare(_new(place))
    disk = FaultyDisk(str(place))
    with disk.working():
        scenario.run(place)
    return disk.calls


def run_faults(name: str, place: Path, most: int = 0, seed: int = 1) -> list[Fault]:
    """Let one call of a command fail in each run: every call in turn, or some drawn at random."""
    scenario = SCENARIOS[name]
    calls = calls_of(scenario, place)
    sound = reference(scenario, place)
    faults = list(faults_of(calls))
    if most:
        faults = random.Random(f"{seed}/{name}").sample(faults, min(most, len(faults)))
    return [run_fault(scenario, number, code, place, sound) for number, code in faults]


def faults_of(calls: list[Call]) -> Iterator[tuple[int, int]]:
    """Yield the number of every call, with each error that it can have."""
    for number, call in enumerate(calls):
        for code in codes_of(call):
            yield number, code


def reference(scenario: Scenario, place: Path) -> tuple[Ended, Any]:
    """Return how a command ends on a working disk, and what it leaves."""
    scenario.prepare(_new(place))
    ended = scenario.run(place)
    return ended, scenario.judge(place)


def run_fault(
    scenario: Scenario, number: int, code: int, place: Path, sound: tuple[Ended, Any]
) -> Fault:
    """Let a call fail, and judge the outcome."""
    fault = Fault(scenario.name, number, code)
    scenario.prepare(_new(place))
    disk = FaultyDisk(str(place), number, code, lasting=random.Random(number).random() < 0.5)
    try:
        with disk.working(), _hearing(_FORGOTTEN) as is_heard:
            ended = scenario.run(place)
        fault.call = disk.failed
        if is_heard():
            return fault
        fault.problem = _wrong_end(ended, disk, sound[0], scenario)
        if not fault.problem and scenario.writes:
            fault.problem = _wrong_afterwards(scenario, place, sound)
    except Exception as err:  # any error is a finding
        fault.call = disk.failed
        frames = [f for f in traceback.extract_tb(err.__traceback__) if "/tests/" not in f.filename]
        where = [f"{Path(f.filename).name}:{f.lineno}" for f in frames[-6:]]
        fault.problem = f"{type(err).__name__}: {err} at {' '.join(where)}"
    return fault


@contextlib.contextmanager
def _hearing(text: str) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether the project has logged a text."""
    heard = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(text in record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("store_core").addHandler(handler)
    try:
        yield lambda: any(heard)
    finally:
        logging.getLogger("store_core").removeHandler(handler)


def _wrong_end(ended: Ended, disk: FaultyDisk, sound: Ended, scenario: Scenario) -> str:
    if disk.failed is None:
        return ""  # threads: fewer calls this time
    if ended.code not in EXIT_CODES:
        return f"exit code {ended.code}: {ended.said[-300:]}"
    if ended.code == sound.code:
        is_other = ended.answer != sound.answer and scenario.admits not in str(ended.answer)
        if not scenario.writes and is_other:
            return f"exit code {ended.code} with another answer: {ended.said[-200:]}"
        return ""
    parts = Path(disk.failed.path).parts
    below = list(parts[parts.index(_CASE) + 1 :]) or [_CASE]
    below += [Path(name).stem.lstrip(".") for name in below]  # the file that it becomes
    if not any(name in ended.said for name in below[1:] or below):  # the file or a directory of it
        return f"exit code {ended.code} names no file: {ended.said[-300:]}"
    return ""


def _wrong_afterwards(scenario: Scenario, place: Path, sound: tuple[Ended, Any]) -> str:
    again = scenario.run(place)
    if again.code not in {sound[0].code, 0}:  # 0: the first run had done everything
        return f"run again, it ends with {again.code}: {again.said[-300:]}"
    left = scenario.judge(place)
    if left != sound[1]:
        return f"run again, it leaves something else: {_unlike(left, sound[1])}"
    return ""


def _unlike(left: Any, wanted: Any) -> str:
    if isinstance(left, tuple):
        return "; ".join(_unlike(a, b) for a, b in zip(left, wanted) if a != b)
    if isinstance(left, list):
        return f"has {left[:3]!r:.200}, not {wanted[:3]!r:.200} ({len(left)}/{len(wanted)})"
    return f"{left!r:.200}, not {wanted!r:.200}"


def _new(place: Path) -> Path:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(place)
    _acknowledged(place).unlink(missing_ok=True)
    place.mkdir(parents=True)
    return place
