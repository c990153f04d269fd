# SPDX-License-Identifier: Apache-2.0
"""A SQL filter over columns of properties, in one thread, like ``filter`` of the Java baseline.

Run as ``python -m bench.filter_side EXPRESSION BATCH MESSAGES``: a process of its own, so that no
library starts threads. FilterLoop.java has the same messages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any, Callable

import numpy as np
import pyarrow as pa

from bench.store_content import key_of, unique_key_of
from store_core import SqlFilter
from store_core.arrow import binary_parts
from store_core.codec.message_codec import properties_to_bytes
from store_core.codec.property_columns import named_values

_ROUNDS = 10
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_IO_THREADS")
_REGIONS = ("eu", "us", "asia", "africa", "south")
_LEVELS = ("gold", "silver", "tin")


def run_filter(expression: str, batch: int, messages: int) -> list[dict[str, Any]]:
    """Run the rounds in a process of its own and return one figure for each."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.filter_side", expression, str(batch), str(messages)],
        env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(expression: str, batch: int, messages: int) -> None:
    """Print one JSON line for each round: from ready columns, then from stored bytes."""
    pa.set_cpu_count(1)
    sql_filter = SqlFilter(expression)
    block = pa.array([properties_of(index) for index in range(batch)], pa.binary())
    ready = _columns(block, sql_filter)
    _rounds("filter_maps", lambda: sql_filter.matches_columns(ready, batch), batch, messages)
    _rounds(
        "filter_stored",
        lambda: sql_filter.matches_columns(_columns(block, sql_filter), batch),
        batch,
        messages,
    )


def _rounds(name: str, matches: Callable[[], Any], batch: int, messages: int) -> None:
    for number in range(_ROUNDS):
        matched = 0
        start = time.perf_counter()
        for _ in range(messages // batch):
            matched += int(np.count_nonzero(matches()))
        seconds = time.perf_counter() - start
        figure = {"figure": name, "round": number, "matched": matched, "seconds": seconds}
        sys.stdout.write(json.dumps(figure) + "\n")


def _columns(block: Any, sql_filter: SqlFilter) -> dict[str, Any]:
    offsets, data = binary_parts(block)
    starts, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    return named_values(data, starts, ends - starts, list(sql_filter.property_names))


def properties_of(index: int) -> bytes:
    """Return the property string of message ``index``."""
    properties = {
        "UNIQ_KEY": unique_key_of(index),
        "KEYS": key_of(index),
        "TAGS": f"tag{index % 7}",
        "WAIT": "true",
        "amount": str(index * 7919 % 1000),
        "region": _REGIONS[index % len(_REGIONS)],
        "level": _LEVELS[index % len(_LEVELS)],
    }
    return properties_to_bytes(properties.items())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
