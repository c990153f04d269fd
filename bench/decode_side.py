# SPDX-License-Identifier: Apache-2.0
"""Decodes a store in one thread, in three rounds, like ``scan`` of the Java baseline.

Run as ``python -m bench.decode_side ROOT``: a process of its own, so that no library has threads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import pyarrow as pa

from bench.product import decode_all
from store_core import StoreSnapshot

_ROUNDS = 3
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_IO_THREADS")


def run_decode(root: str) -> list[dict[str, Any]]:
    """Run the rounds in a process of its own and return one figure for each."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.decode_side", root],
        env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(root: str) -> None:
    """Print one JSON line for each round."""
    pa.set_cpu_count(1)
    end_offset = StoreSnapshot(root).max_phy_offset
    for number in range(_ROUNDS):
        start = time.perf_counter()
        rows = decode_all(root, end_offset)
        seconds = time.perf_counter() - start
        sys.stdout.write(json.dumps({"round": number, "count": rows, "seconds": seconds}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
