# SPDX-License-Identifier: Apache-2.0
"""Keeping a process on one core."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from rmqnet.cpu_affinity import on_one_core

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="the system knows no affinity"
)


def _cores_of_a_thread() -> set[int]:
    found: list[set[int]] = []
    thread = threading.Thread(target=lambda: found.append(os.sched_getaffinity(0)))
    thread.start()
    thread.join()
    return found[0]


@needs_affinity
def test_threads_share_a_core_of_those_that_the_process_may_use() -> None:
    before = os.sched_getaffinity(0)
    with on_one_core():
        inside = os.sched_getaffinity(0)
        assert len(inside) == 1
        assert inside <= before
        assert _cores_of_a_thread() == inside
    assert os.sched_getaffinity(0) == before
    assert _cores_of_a_thread() == before


@needs_affinity
def test_it_ends_with_an_error_too() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(ValueError, match="wrong"), on_one_core():
        raise ValueError("wrong")
    assert os.sched_getaffinity(0) == before


@needs_affinity
def test_a_system_that_does_not_allow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_process: int, _cores: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with pytest.raises(ValueError, match="wrong"), on_one_core():
        raise ValueError("wrong")


def test_a_system_that_does_not_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    is_inside = False
    with on_one_core():
        is_inside = True
    assert is_inside
