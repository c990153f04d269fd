# SPDX-License-Identifier: Apache-2.0
"""A test that fails does not make the next one fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = """
import threading

import rmqnet
from rmqnet import Producer
from store_core import MessageStore, MessageStoreConfig

left = []

def test_that_fails(tmp_path):
    served = rmqnet.serve(str(tmp_path / "served")).start()
    left.append(Producer("group", served.namesrv_addr).start())
    store = MessageStore(MessageStoreConfig(store_path_root_dir=str(tmp_path / "own")))
    store.load()
    store.start()
    assert served is None

def test_that_passes(tmp_path):
    started = {thread.name for thread in threading.enumerate() if thread.name != "MainThread"}
    assert not [name for name in started if "rocketmq" in name.lower() or "Service" in name]
    assert not list(tmp_path.parent.rglob("abort"))
"""


def test_what_a_failed_test_started_is_stopped(tmp_path: Path) -> None:
    file = tmp_path / "test_two.py"
    file.write_text(TESTS, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p"]
    command += ["tests.conftest", "--rootdir", str(tmp_path), "-c", os.devnull, str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
