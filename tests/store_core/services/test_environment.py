from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from store_core.services.environment import disk_ratio


@pytest.mark.parametrize(
    ("blocks", "free", "available", "ratio"),
    [
        (1000, 1000, 950, 0.0),
        (1000, 500, 500, 0.5),
        (1000, 499, 499, 0.51),  # percents are rounded up
        (1000, 500, 300, 0.63),  # what is kept for root does not count
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
