# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from store_core.services.environment import disk_ratio, is_gone


@pytest.mark.parametrize(
    ("blocks", "free", "available", "ratio"),
    [
        (1000, 1000, 950, 0.0),
        (1000, 500, 500, 0.5),
        (1000, 499, 499, 0.51),  # percents are rounded up
        (1000, 500, 300, 0.63),  # space reserved for root does not count
        (1000, 50, 0, 1.0),
        (0, 0, 0, -1),
    ],
)
def test_percents(monkeypatch, blocks, free, available, ratio):
    found = SimpleNamespace(f_blocks=blocks, f_bfree=free, f_bavail=available, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    assert disk_ratio("/x") == ratio


def test_a_real_and_a_missing_directory(tmp_path):
    assert 0 < disk_ratio(str(tmp_path)) <= 1
    assert disk_ratio(str(tmp_path / "missing")) == -1
    assert (is_gone(str(tmp_path)), is_gone(str(tmp_path / "missing"))) == (False, True)


def test_what_may_not_be_looked_at_is_not_gone(monkeypatch):
    def forbidden(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", forbidden)
    assert not is_gone("/x")
