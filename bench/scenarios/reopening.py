# SPDX-License-Identifier: Apache-2.0
"""Opening a store that crashed or lost queues and index, compared with RocketMQ's own store."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import rate_figure
from bench.java_side import last_round
from store_core import MessageStore, MessageStoreConfig
from store_core.layout import ABORT_FILE, CONSUME_QUEUE_DIR, INDEX_DIR

if TYPE_CHECKING:
    from bench.context import Context
    from bench.figures import Figure

_POLL_SECONDS = 0.002


def dispatch_all(context: Context) -> list[Figure]:
    """Open a store whose queues and index are gone."""
    lost = (CONSUME_QUEUE_DIR, INDEX_DIR)
    what = "queues and index rebuilt from the log"
    return [_reopened(context, "k", what, lost, (5, 10), abort=False)]


def abnormal_recovery(context: Context) -> list[Figure]:
    """Open an intact store that was not stopped."""
    what = "abnormal recovery of an intact store"
    return [_reopened(context, "l", what, (), (4, 8), abort=True)]


def _reopened(
    context: Context,
    letter: str,
    what: str,
    lost: tuple[str, ...],
    bounds: tuple[float, float],
    *,
    abort: bool,
) -> Figure:
    spec = context.sizes.short
    root = context.work / "reopened-store"
    ours, java = [], []
    try:
        for _ in range(context.store_runs):
            _copy(Path(context.root(spec)), root, lost, abort=abort)
            figures = context.java.run("open", str(root.resolve()))
            java.append(float(last_round(figures, "open_until_dispatched")["seconds"]))
            _copy(Path(context.root(spec)), root, lost, abort=abort)
            ours.append(_open(root))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return rate_figure(
        letter,
        f"{what}, {spec.label}",
        "Java, the same store",
        rows=spec.messages,
        ours_seconds=ours,
        other_seconds=java,
        must=bounds[0],
        aim=bounds[1],
    )


def _open(root: Path) -> float:
    """Return the seconds until everything is dispatched, the index included."""
    start = time.perf_counter()
    store = MessageStore(MessageStoreConfig(store_path_root_dir=str(root.resolve())))
    store.load()
    store.start()
    try:
        while store.dispatch_behind_bytes > 0:
            time.sleep(_POLL_SECONDS)
        return time.perf_counter() - start
    finally:
        store.shutdown()


def _copy(source: Path, root: Path, lost: tuple[str, ...], *, abort: bool) -> None:
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["cp", "-a", str(source), str(root)], check=True)  # keeps holes
    for name in lost:
        shutil.rmtree(root / name)
    if abort:
        (root / ABORT_FILE).touch()
    os.sync()  # otherwise the next flush to disk also waits for the copy
