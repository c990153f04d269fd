# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.rmqnet.client.consumer.scripted_queues import ScriptedQueues
from tests.rmqnet.scripted_cluster import ScriptedCluster, wait_until


@pytest.fixture
def broker() -> Iterator[ScriptedQueues]:
    """A broker with topic ``orders`` of two queues; fails if a thread of a client is left."""
    with ScriptedCluster() as cluster:
        cluster.add_topic("orders", queues={"broker-a": 2})
        yield ScriptedQueues(cluster)
    left = ("rocketmq-client", "ConsumeMessageThread")
    wait_until(
        lambda: not [each for each in threading.enumerate() if each.name.startswith(left)],
        "the end of all threads of clients",
    )
