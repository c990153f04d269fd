# SPDX-License-Identifier: Apache-2.0
"""Arrow is loaded when it is used, and not before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.compute
import pytest

from store_core.arrow import pa, pc

ROOT = Path(__file__).parent.parent.parent
CODE = """
import sys, threading
from store_core.arrow import pa, pc
assert "pyarrow" not in sys.modules
found, together = [], threading.Barrier(8)
def use():
    together.wait()
    found.append((pa.array, pc.take))
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
import pyarrow, pyarrow.compute
assert found == [(pyarrow.array, pyarrow.compute.take)] * 8, found
"""


def test_several_threads_may_be_the_first():
    subprocess.run([sys.executable, "-c", CODE], check=True, cwd=ROOT)


def test_all_is_that_of_the_modules():
    assert pa.RecordBatch is pyarrow.RecordBatch
    assert pc.binary_join is pyarrow.compute.binary_join
    assert pa.__version__ == pyarrow.__version__
    assert "RecordBatch" in vars(pa)  # from the first use on it costs no call
    with pytest.raises(AttributeError, match="absent"):
        _ = pa.absent
