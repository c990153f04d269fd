# SPDX-License-Identifier: Apache-2.0
"""A sample of the failing calls that `make soak` tries; and a check that faults reach the calls."""

from __future__ import annotations

import errno
import os

import pytest

from tests.hostile.fault_runs import SCENARIOS, calls_of, run_faults
from tests.hostile.faults import FaultyDisk

_FEW = 4
_HERE = [name for name, scenario in SCENARIOS.items() if not scenario.uses_spark]
"""Scenarios without Spark; the others would leave a session to later tests of this process."""


@pytest.fixture(autouse=True)
def _without_waiting_for_disks(monkeypatch):
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.parametrize("name", _HERE)
def test_some_calls_fail_once(tmp_path, name):
    faults = run_faults(name, tmp_path / "case-x", _FEW)
    assert [str(fault) for fault in faults if fault.problem] == []
    assert len(faults) == _FEW


def test_every_kind_of_call_is_seen(tmp_path):
    seen = {call.name for call in calls_of(SCENARIOS["write"], tmp_path / "case-x")}
    kinds = {"open", "stat", "scandir", "mkdir", "replace", "unlink", "pwrite", "pread"}
    assert kinds | {"fdatasync", "fsync", "ftruncate", "fstat", "mmap"} <= seen


def test_the_call_with_the_number_fails_and_no_other(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    disk = FaultyDisk(str(tmp_path), 1, errno.EIO)
    with disk.working():
        assert path.stat().st_size == 1
        with pytest.raises(OSError, match="Input/output error"):
            path.read_bytes()
        assert path.read_bytes() == b"x"
    assert disk.failed is not None
    assert disk.failed.name == "open"
