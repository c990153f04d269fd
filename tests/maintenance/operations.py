# SPDX-License-Identifier: Apache-2.0
"""Maintenance of a store in this process, each operation as users run it.

An operation takes a `Store` and returns how it ended. If it makes another store, it may continue
with that one (``store.root``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from rmqsource.errors import SourceError
from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.committing import commit_parts
from rmqsource.sink.errors import SinkCommitError
from rmqsource.sink.options import parse_sink_options
from rmqsource.sink.prepared_write import plan_write
from rmqsource.sink.task import stage_part
from rmqsource.transfer.copy_store import COPIED_COLUMNS
from store_core import MessageStore
from store_core.errors import StoreError
from tests.hostile.cases import run_cli
from tests.maintenance.stores import Store, leave_as_killed, put_messages
from tests.rmqsource.reading import read_batches
from tests.rmqsource.sink.support import TYPES

OWN_ERRORS = (SourceError, StoreError, SinkCommitError)


class Outcome(NamedTuple):
    """How an operation ended.

    ``cut`` is how many readable records it reports as cut, ``left_out`` how many it reports as
    missing in its new store. ``put`` are the bodies that it acknowledged; ``elsewhere``: they are
    in a store other than the one that the sequence continues with.
    """

    code: int
    said: str
    cut: int = 0
    left_out: int = 0
    put: tuple[bytes, ...] = ()
    elsewhere: bool = False


class Operation(NamedTuple):
    """``may_cut``: its flag allows cutting records of the log; ``may_leave_out``: leaving out units
    of queues. ``opens``: it cuts a crash's tail, with a copy and without a flag.
    """

    run: Callable[[Store], Outcome]
    may_cut: bool = False
    may_leave_out: bool = False
    opens: bool = False


def _command(store: Store, name: str, *arguments: object) -> tuple[Outcome, dict[str, Any]]:
    answer = run_cli(name, *arguments, "--format", "json", *store.flags)
    said = f"code {answer.code}: {answer.err.strip()[-300:]}"
    assert "Traceback" not in answer.err, answer.err
    assert answer.code in {0, 1, 2, 3}, said
    lines = answer.out.strip().splitlines()
    return Outcome(answer.code, said), json.loads(lines[-1]) if lines else {}


def _recover(*flags: str) -> Callable[[Store], Outcome]:
    def recover(store: Store) -> Outcome:
        outcome, row = _command(store, "recover", store.root, *flags)
        return outcome._replace(cut=row.get("records_cut", 0))

    return recover


def _rebuild(what: str, *flags: str) -> Callable[[Store], Outcome]:
    def rebuild(store: Store) -> Outcome:
        return _command(store, what, store.root, *flags)[0]

    return rebuild


def _salvage(store: Store) -> Outcome:
    """Continue with the new store, mostly."""
    target = store.another_root()
    outcome, row = _command(store, "salvage", store.root, target)
    if target.exists() and store.chance.random() < 0.8:
        store.root = target
    return outcome._replace(left_out=len(row.get("rejected_records", ())))


def _put(store: Store) -> Outcome:
    return _opened(store, dies=False)


def _put_and_die(store: Store) -> Outcome:
    return _opened(store, dies=True)


def _opened(store: Store, *, dies: bool) -> Outcome:
    opened = MessageStore(store.config())
    try:
        opened.load()
        opened.start()
        put = put_messages(store, opened, store.chance.randint(1, 12))
        if store.chance.random() < 0.7:
            opened.wait_for_dispatch(20)
        if dies:
            leave_as_killed(store)
    except OWN_ERRORS as err:
        return Outcome(2, repr(err))
    finally:
        opened.shutdown()
    return Outcome(0, f"{len(put)} put", put=tuple(put))


def _write(store: Store) -> Outcome:
    """Write as the tasks and the driver of ``df.write`` do."""
    made = [store.message(of_batches=False) for _ in range(store.chance.randint(1, 12))]
    batch = pa.record_batch(
        {
            name: pa.array([getattr(message, name) for message in made], TYPES[name][1])
            for name in ("topic", "body", "queue_id", "keys", "tags")
        }
    )
    half = len(made) // 2
    names = [(name, TYPES[name][0]) for name in batch.schema.names]
    parts = [[batch.slice(0, half)], [batch.slice(half)]]
    return _append(store, store.root, names, parts, [message.body for message in made])


def _import(store: Store) -> Outcome:
    """Run the job of ``import`` on messages exported from another store."""
    made = [store.message(of_batches=False) for _ in range(store.chance.randint(1, 12))]
    times = [1_700_000_000_000_000] * len(made)
    columns = {
        "topic": pa.array([message.topic for message in made]),
        "queue_id": pa.array([message.queue_id for message in made], pa.int32()),
        "body": pa.array([message.body for message in made], pa.binary()),
        "properties_raw": pa.array([_raw(message.properties) for message in made], pa.binary()),
        "flag": pa.array([3] * len(made), pa.int32()),
        "born_timestamp": pa.array(times, pa.timestamp("us", "UTC")),
        "born_host": pa.array(["10.0.0.1:4000"] * len(made)),
        "reconsume_times": pa.array([0] * len(made), pa.int32()),
    }
    batch, names = pa.record_batch(columns), list(COPIED_COLUMNS.items())
    return _append(store, store.root, names, [[batch]], [message.body for message in made])


def _raw(properties: dict[str, str]) -> bytes:
    kept = {name: value for name, value in properties.items() if name != "INNER_NUM"}
    return b"".join(b"%s\1%s\2" % (n.encode(), v.encode()) for n, v in kept.items())


def _copy(store: Store) -> Outcome:
    """Append all of the store to a new one, and mostly continue with that."""
    target = store.another_root()
    options = {"mode": "FAILFAST", "checkCRC": "true", "config": str(store.config_file)}
    rows = read_batches(store.root, tuple(COPIED_COLUMNS), **options)
    bodies: list[bytes] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            bodies.extend(batch["body"].to_pylist())
            yield pa.RecordBatch.from_arrays(list(batch.values()), names=list(batch))

    outcome = _append(store, target, list(COPIED_COLUMNS.items()), [batches()], bodies)
    if outcome.code == 0 and bodies and store.chance.random() < 0.5:
        store.root = target
    return outcome._replace(elsewhere=store.root != target)


def _append(
    store: Store, target: Path, names: list[tuple[str, str]], parts: list[Any], bodies: list[bytes]
) -> Outcome:
    sizes = {key: value for key, value in store.properties.items() if "Size" in key or "max" in key}
    sizes.pop("maxMessageSize")
    options = {"path": str(target), **sizes, "systemTopics": "true"}
    options["compatibility"] = "5"
    try:
        plan = plan_write(parse_sink_options(options), resolve_sink_columns(names))
        staged = [stage_part(part, plan, number) for number, part in enumerate(parts)]
        commit = commit_parts(plan, staged)
    except OWN_ERRORS as err:
        return Outcome(2, repr(err))
    assert commit is None or commit.messages == len(bodies)
    return Outcome(0, f"{len(bodies)} written", put=tuple(bodies))


def _clean_staging(store: Store) -> Outcome:
    answer = run_cli("clean-staging", store.root, "--older-than", 0)
    return Outcome(answer.code, answer.err.strip()[-300:])


OPERATIONS: dict[str, Operation] = {
    "recover": Operation(_recover(), opens=True),
    "recover --cut": Operation(_recover("--cut"), may_cut=True, may_leave_out=True),
    "rebuild-queues": Operation(_rebuild("rebuild-queues")),
    "rebuild-queues --accept-moved": Operation(
        _rebuild("rebuild-queues", "--accept-moved"), may_leave_out=True
    ),
    "rebuild-index": Operation(_rebuild("rebuild-index")),
    "salvage": Operation(_salvage),
    "copy": Operation(_copy),
    "import": Operation(_import),
    "write": Operation(_write),
    "put": Operation(_put, opens=True),
    "put and die": Operation(_put_and_die, opens=True),
    "clean-staging": Operation(_clean_staging),
}
"""Operations by name; `large_operations` has those that require a network or a JVM."""
