# SPDX-License-Identifier: Apache-2.0
"""A store on an S3-compatible server: a whole scan, and a plan by key with slow requests."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from bench.fetching_source import FETCHING, FetchingSource
from bench.figures import Figure, rate_figure, time_figure
from bench.object_store import ObjectStore
from bench.s3_server import s3_server, s3_uri, slow_link, upload
from bench.spark_side import alternate, run_to_noop
from bench.store_content import key_of, topic_of
from rmqsource.options.source_options import options_for
from rmqsource.scan.planner import plan_store
from rmqsource.scan.predicate import from_options
from rmqsource.scan.read_columns import plan_read
from store_core.files.remote_files import RemoteFiles
from store_core.files.remote_filesystem import open_filesystem
from store_core.files.store_directory import StoreDirectory
from store_core.files.store_uri import StoreUri
from store_core.layout import CHECKPOINT_FILE, COMMIT_LOG_DIR, CONFIG_DIR
from store_core.log.log_scan import LogSlice
from store_core.snapshot.store_snapshot import StoreSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

    from bench.context import Context

_TASKS = 2
_STORE = "store"
_WAIT_MS = 20
_BYTES_A_SECOND = 100_000_000
"""Of a connection, as an object store over a network gives them."""


def full_scan(context: Context) -> list[Figure]:
    """Scan a store, compared with tasks that only fetch its bytes, with and without a network."""
    spec = context.sizes.long
    with _served(context) as address:
        with slow_link(address, _WAIT_MS, _BYTES_A_SECOND) as link:
            over_network = _scan(context, s3_uri(link, _STORE))
        beside = _scan(context, s3_uri(address, _STORE))
    what = f"full scan from S3, {spec.label}"
    slow = f"{_WAIT_MS} ms a request, {_BYTES_A_SECOND // 10**6} MB/s a connection"
    against = f"fetching with pyarrow.fs, {_TASKS} tasks"
    return [
        rate_figure(
            "zt",
            f"{what}, {slow}",
            against,
            rows=spec.messages,
            ours_seconds=over_network.ours,
            other_seconds=over_network.fetching,
            must=0.6,
            aim=0.9,
        ),
        rate_figure(
            "zt",
            f"{what}, server on the same two cores",
            against,
            rows=spec.messages,
            ours_seconds=beside.ours,
            other_seconds=beside.fetching,
        ),
    ]


class _Times(NamedTuple):
    ours: list[float]
    fetching: list[float]


def _scan(context: Context, uri: str) -> _Times:
    spark = context.spark
    spark.dataSource.register(FetchingSource)
    ours = spark.read.format("rocketmq-store").load(uri)
    fetching = _fetching_frame(context, uri)
    rows = ours.select("topic").count()
    if rows != context.sizes.long.messages:
        raise ValueError(f"the scan found {rows} messages")
    jobs = [lambda: run_to_noop(ours), lambda: run_to_noop(fetching)]
    return _Times(*alternate(jobs, context.scan_runs))


def _fetching_frame(context: Context, uri: str) -> DataFrame:
    """Return a frame whose tasks fetch the bytes of a scan, half of them each."""
    options = options_for(uri)
    [plan] = plan_read(options, from_options(options))
    parts = [part for split in plan.splits for part in split.parts if isinstance(part, LogSlice)]
    tasks: list[list[tuple[str, int, int]]] = [[] for _ in range(_TASKS)]
    done = 0
    for part in parts:
        start, stop = part.start - part.from_offset, min(part.stop, part.end_offset)
        number = min(done * _TASKS // max(plan.bytes_to_read, 1), _TASKS - 1)
        tasks[number].append((part.path, start, stop - part.from_offset))
        done += stop - part.start
    return context.spark.read.format(FETCHING).options(uri=uri, tasks=json.dumps(tasks)).load()


@contextmanager
def _served(context: Context) -> Iterator[str]:
    """Yield the address of a server with the files of the store that a scan reads."""
    work = context.work / "s3"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    root = context.work / context.root(context.sizes.long)
    try:
        with s3_server(work) as address:
            _upload(root, s3_uri(address, _STORE))
            yield address
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _upload(root: Path, uri: str) -> None:
    filesystem, target = open_filesystem(StoreUri(uri))
    for name in (COMMIT_LOG_DIR, CONFIG_DIR):
        upload(filesystem, root / name, f"{target}/{name}")
    with filesystem.open_output_stream(f"{target}/{CHECKPOINT_FILE}") as stream:
        stream.write((root / CHECKPOINT_FILE).read_bytes())


def plan_by_key(context: Context) -> list[Figure]:
    """Plan by key when each request takes 20 ms, compared with the longest chain of requests."""
    spec = context.sizes.short
    root = context.root(spec)
    figures = []
    for what, number in (("first plan", 0), ("a later plan", context.store_runs)):
        seconds, chains = [], []
        for run in range(max(number, 1) + 1):
            objects = ObjectStore(_WAIT_MS / 1000)
            seconds.append(_plan(root, objects, spec.messages // 2))
            chains.append(objects.longest_chain() * _WAIT_MS / 1000)
            if number == 0 and run == 0:
                break
        kept = slice(0, 1) if number == 0 else slice(1, None)
        requests = len(objects.requests)
        figures.append(
            time_figure(
                "zu",
                f"plan by key, {_WAIT_MS} ms a request, {what} ({requests} requests), {spec.label}",
                f"longest chain ({round(chains[-1] * 1000 / _WAIT_MS)}) x {_WAIT_MS} ms",
                ours_seconds=seconds[kept],
                other_seconds=chains[kept],
                must=1.5,
                aim=1.1,
            )
        )
    return figures


def _plan(root: str, objects: ObjectStore, number: int) -> float:
    options = options_for(root, {"topic": topic_of(number), "keys": key_of(number)})
    predicate = from_options(options)
    directory = StoreDirectory(root)
    directory.is_local = False
    directory._files = RemoteFiles(objects, root)
    begun = time.perf_counter()
    with StoreSnapshot(directory) as snapshot:
        found = plan_store(snapshot, predicate, options)
    taken = time.perf_counter() - begun
    if found.access_path != "index":
        raise ValueError(f"the plan went through {found.access_path}: {found.reason}")
    return taken
