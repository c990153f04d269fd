# SPDX-License-Identifier: Apache-2.0
"""Streams follow stores that RocketMQ and this project write, one store after the other."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.interop.test_followed_stores import WAYS, follow_rocketmq
from tests.rmqsource.stream.test_live_store import follow_own_store
from tests.soak.test_crash import stores

pytestmark = pytest.mark.soak
_LIVES, _MESSAGES = 4, 10_000


@pytest.mark.parametrize("writer", ["RocketMQ", "ours"])
def test_every_message_once_and_in_order(tmp_path, capsys, soak_seconds, soak_seed, writer):
    figures: Counter[str] = Counter()
    for root, seed in stores(tmp_path, soak_seconds, soak_seed):
        api, read_up_to = WAYS[seed % len(WAYS)]
        if writer == "ours":
            followed = follow_own_store(root, read_up_to, _LIVES, _MESSAGES, seed)
        else:
            followed = follow_rocketmq(root, api, read_up_to, _LIVES, _MESSAGES, seed)
        assert followed.messages >= _LIVES * _MESSAGES
        figures.update(stores=1, **followed._asdict())
    with capsys.disabled():
        print(f"\n{writer}: {dict(figures)}")
