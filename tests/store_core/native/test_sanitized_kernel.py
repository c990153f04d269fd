# SPDX-License-Identifier: Apache-2.0
"""No function of the kernel reads or writes past its buffers, whatever the bytes in them are."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.golden_store import STORE_NAMES, golden

SANITIZERS = "-fsanitize=address,undefined"
WARNINGS = "-Wall -Wextra -Wconversion -Wshadow -Werror"
RECORDS, SOAK_RECORDS = 100_000, 10_000_000


@pytest.fixture(scope="module")
def kernel(tmp_path_factory) -> Path:
    """Return a kernel that ends the process at the first access out of bounds."""
    library = tmp_path_factory.mktemp("sanitized") / "_kernel.so"
    sources = sorted(ROOT.glob("store_core/native/*.c"))
    flags = shlex.split(
        f"-std=c11 -O1 -g {SANITIZERS} -fno-sanitize-recover=all -shared -fPIC {WARNINGS}"
    )
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["gcc", *flags, include, *sources, "-o", library], check=True)
    return library


def fuzz(kernel: Path, records: int, seed: int) -> None:
    logs = [file for name in STORE_NAMES for file in golden(name).root.rglob("commitlog*/0*")]
    libraries = [
        subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.store_core.native.kernel_fuzz"),
            *(kernel, str(records), str(seed), *logs),
        ],
        cwd=ROOT,
        # Python's own allocator has no guards between its blocks, and never frees some of them.
        env={
            **os.environ,
            "LD_PRELOAD": " ".join(libraries),
            "PYTHONMALLOC": "malloc",
            "ASAN_OPTIONS": "detect_leaks=0",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-6000:]}"
    assert int(done.stdout.split()[0]) >= records


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the kernel needs Python 3.11")
class TestSanitized:
    def test_it_stays_in_its_buffers(self, kernel):
        fuzz(kernel, RECORDS, 1)

    @pytest.mark.soak
    def test_it_stays_in_its_buffers_for_long(self, kernel, soak_seed):
        fuzz(kernel, SOAK_RECORDS, soak_seed)
