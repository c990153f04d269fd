# SPDX-License-Identifier: Apache-2.0
"""Every call of every command fails once, with every error that it can have."""

from __future__ import annotations

import os

import pytest

from tests.hostile.fault_runs import SCENARIOS, run_faults

pytestmark = pytest.mark.soak


@pytest.fixture(autouse=True)
def _without_waiting_for_disks(monkeypatch):
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_call_fails_once(tmp_path, capsys, name):
    faults = run_faults(name, tmp_path / "case-x")
    with capsys.disabled():
        print(f"\n{name}: {len(faults)} faults")
    assert [str(fault) for fault in faults if fault.problem] == []
