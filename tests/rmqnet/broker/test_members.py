"""Members of consumer groups on a whole broker: who reads what, and who hears of it."""

from __future__ import annotations

import threading
import time

import pytest

from rmqnet import (
    Admin,
    ClientConfig,
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    TopicConfig,
    serve,
)

QUEUES = 4


class Member:
    """A push consumer that keeps what it gets, and which queues it was given."""

    def __init__(self, served, group, *, orderly=False):
        self.bodies = []
        config = ClientConfig(served.namesrv_addr, persist_consumer_offset_interval_ms=100)
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        # Nobody shares out queues on its own while a test runs: it has to be told.
        options = PushConsumerOptions(consume_from_where=first, rebalance_interval_ms=60_000)
        self.consumer = PushConsumer(group, config, self.take, orderly=orderly, options=options)
        self.consumer.subscribe("t")
        self._lock = threading.Lock()

    def take(self, messages, context):
        with self._lock:
            self.bodies.extend(message.body for message in messages)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("store")) as served, Admin(served.namesrv_addr) as admin:
        admin.update_topic(TopicConfig("t", QUEUES, QUEUES))
        with Producer("p", served.namesrv_addr) as producer:
            for number in range(20):
                producer.send(Message("t", b"%d" % number))
        yield served


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def wait_for_a_share(served, member):
    """Send until a member gets something."""
    with Producer("p", served.namesrv_addr) as producer:

        def gets_some():
            producer.send(Message("t", b"more"))
            return member.bodies

        wait_until(gets_some)


def locked_by(served, group):
    """Return how many queues each member has, where each is locked by one."""
    broker = served.controller.broker
    held = broker.locks._groups.get(group, {})
    ids = [lock.client_id for queue, lock in held.items() if queue.topic == "t"]
    return sorted(map(ids.count, set(ids)))


def test_members_share_and_hear_of_each_other(served):
    first, second = Member(served, "shared"), Member(served, "shared")
    with first.consumer:
        wait_until(lambda: len(first.bodies) == 20)
        with second.consumer:
            info = served.controller.broker.consumers.group_info("shared")
            wait_until(lambda: len(info.client_ids) == 2)
            wait_for_a_share(served, second)
        before = len(second.bodies)
        wait_until(lambda: len(info.client_ids) == 1)
        assert len(second.bodies) == before
    wait_until(lambda: served.controller.broker.consumers.group_info("shared") is None)
    with Admin(served.namesrv_addr) as admin:
        stats = admin.consume_stats("shared", "t")
        assert sum(each.consumer_offset for each in stats.queues.values()) >= 20


def test_queues_of_an_orderly_group_are_locked_by_one_member_each(served):
    first, second = Member(served, "orderly", orderly=True), Member(served, "orderly", orderly=True)
    with first.consumer:
        wait_until(lambda: locked_by(served, "orderly") == [QUEUES])
        with second.consumer:
            wait_until(lambda: locked_by(served, "orderly") == [QUEUES // 2, QUEUES // 2])
            wait_for_a_share(served, second)
        wait_until(lambda: locked_by(served, "orderly") == [QUEUES])
    wait_until(lambda: locked_by(served, "orderly") == [])
    assert served.controller.broker.topics.select("%RETRY%orderly") is not None
