# SPDX-License-Identifier: Apache-2.0
"""A stream follows a store that another process writes, rolls and expires, and that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rmqsource.stream.live_store import Followed, LiveFollow, python_feeder

_LIVES, _MESSAGES = 3, 700


@pytest.mark.parametrize("read_up_to", ["dispatched", "written"])
def test_every_message_once_and_in_order(tmp_path, read_up_to):
    followed = follow_own_store(tmp_path, read_up_to, _LIVES, _MESSAGES, seed=3)
    assert followed.messages >= _LIVES * _MESSAGES
    assert followed.expired > 0


def follow_own_store(
    directory: Path, read_up_to: str, lives: int, messages: int, seed: int
) -> Followed:
    """Let processes put messages one after the other; each except the last one is killed."""
    root, journal = directory / "store", directory / "journal"
    root.mkdir()
    follow = LiveFollow(root, journal, seed, readUpTo=read_up_to)
    for life in range(lives):
        feeder = python_feeder(root, journal, seed * 1000 + life)
        follow.during(feeder, messages)
        follow.stop(feeder, kill=life < lives - 1)
    return follow.finish()
