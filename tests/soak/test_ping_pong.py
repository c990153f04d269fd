"""RocketMQ and this project append to one store in turn, twenty times."""

from __future__ import annotations

import time

import pytest

from tests.interop.test_ping_pong import PROFILES, play

pytestmark = pytest.mark.soak
_ROUNDS = 20


@pytest.mark.parametrize(("api", "profile"), PROFILES)
def test_every_message_is_found_every_time(tmp_path, capsys, soak_seconds, soak_seed, api, profile):
    deadline = time.monotonic() + soak_seconds
    rounds = play(tmp_path, api, profile, _ROUNDS, soak_seed, deadline=deadline)
    with capsys.disabled():
        print(f"\n{rounds} rounds of {profile}")
    assert rounds > 0
