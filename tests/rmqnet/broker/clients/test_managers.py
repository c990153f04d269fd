# SPDX-License-Identifier: Apache-2.0
"""Tables of producers, consumers and locks, without a network."""

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
from rmqnet.broker.clients.client_channel_info import ClientChannelInfo
from rmqnet.broker.clients.consumer_manager import ConsumerManager
from rmqnet.broker.clients.producer_manager import ProducerManager
from rmqnet.broker.clients.rebalance_lock_manager import RebalanceLockManager
from rmqnet.client.heartbeat_data import (
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rmqnet.client.message_queue import MessageQueue
from rmqnet.remoting.codes import LanguageCode
from tests.rmqnet.broker.client_broker import FakeConnection

QUEUES = 4


def client(name, connection=None, now=1000):
    connection = connection or FakeConnection(name)
    return ClientChannelInfo(connection, name, LanguageCode.JAVA, 479, now)


class Heard:
    """A listener that records its events."""

    def __init__(self):
        self.events = []

    def on_members_changed(self, group, members):
        self.events.append(("members", group, sorted(each.address for each in members)))

    def on_subscriptions(self, group, subscriptions):
        self.events.append(("wants", group, [each.topic for each in subscriptions]))

    def on_group_gone(self, group):
        self.events.append(("gone", group))

    def taken(self):
        events, self.events = self.events, []
        return events


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def consumers(heard):
    return ConsumerManager(heard)


def data(*topics, group="g", version=1, **changes):
    subscriptions = tuple(SubscriptionData(topic, sub_version=version) for topic in topics)
    return ConsumerData(group, subscriptions, **changes)


def test_all_members_hear_of_a_new_one_and_of_one_that_leaves(consumers, heard):
    a, b = client("a"), client("b")
    assert consumers.register(a, data("t"))
    assert heard.taken() == [("members", "g", ["a"]), ("wants", "g", ["t"])]
    assert consumers.register(b, data("t"))
    assert heard.taken()[0] == ("members", "g", ["a", "b"])
    assert not consumers.register(client("a", a.connection, 2000), data("t"))
    assert heard.taken() == [("wants", "g", ["t"])]
    consumers.unregister("g", a.connection)
    assert heard.taken() == [("members", "g", ["b"])]
    consumers.unregister("g", a.connection)
    consumers.unregister("nobody", a.connection)
    assert heard.taken() == []
    consumers.remove(b.connection)
    assert heard.taken() == [("gone", "g")]
    assert consumers.group_info("g") is None


def test_topics_that_come_and_go_are_a_change_other_expressions_are_none(consumers, heard):
    a = client("a")
    consumers.register(a, data("t"))
    assert consumers.register(a, data("t", "u", version=2))
    assert consumers.find_subscription("g", "t").sub_version == 2
    assert not consumers.register(a, data("t", "u", version=3))
    assert consumers.find_subscription("g", "t").sub_version == 3
    assert not consumers.register(a, data("t", "u", version=1))
    assert consumers.find_subscription("g", "t").sub_version == 3
    heard.taken()
    assert consumers.register(a, data("u"))
    assert heard.taken()[0] == ("members", "g", ["a"])
    assert consumers.find_subscription("g", "t") is None
    assert consumers.is_unsubscribed("g", "t")
    assert not consumers.is_unsubscribed("g", "u")
    assert not consumers.is_unsubscribed("offline", "t")
    assert consumers.groups_of_topic("u") == {"g"}


def test_a_heartbeat_without_subscriptions_leaves_those_that_are_known(consumers):
    a = client("a")
    consumers.register(a, data("t"))
    assert not consumers.register(a, data(), is_without_subscriptions=True)
    assert consumers.find_subscription("g", "t") is not None


@pytest.mark.parametrize(
    ("changes", "options"),
    [({"message_model": MessageModel.BROADCASTING}, {}), ({}, {"is_notifying": False})],
)
def test_groups_whose_members_hear_nothing(consumers, heard, changes, options):
    assert consumers.register(client("a"), data("t", **changes), **options)
    assert heard.taken() == [("wants", "g", ["t"])]


def test_what_a_group_is_like_is_what_its_last_heartbeat_says(consumers):
    consumers.register(client("a"), data("t"))
    consumers.register(client("b"), data("t", consume_type=ConsumeType.CONSUME_ACTIVELY))
    assert consumers.group_info("g").consume_type is ConsumeType.CONSUME_ACTIVELY
    assert sorted(consumers.group_info("g").client_ids) == ["a", "b"]
    assert consumers.find_client("g", "b").client_id == "b"
    assert consumers.find_client("g", "c") is consumers.find_client("h", "b") is None


def test_a_connection_with_another_client_id_is_that_client(consumers):
    a = client("a")
    consumers.register(a, data("t"))
    consumers.register(client("a2", a.connection), data("t"))
    assert consumers.group_info("g").client_ids == ["a2"]


def test_silent_consumers_are_forgotten_and_the_others_hear_of_it(consumers, heard):
    a, b = client("a", now=1000), client("b", now=2000)
    for group in ("g", "h"):
        consumers.register(a, data("t", group=group))
    consumers.register(b, data("t"))
    heard.taken()
    assert consumers.expire(1000) == []
    assert consumers.expire(1001) == [a.connection]
    assert heard.taken() == [("members", "g", ["b"]), ("gone", "h")]
    assert consumers.groups_of(b.connection) == ["g"]


def test_what_pulls_want_is_known_for_a_while(consumers):
    consumers.compensate("g", SubscriptionData("t", "a", sub_version=1000))
    assert consumers.find_subscription("g", "t").sub_string == "a"
    consumers.register(client("x"), data("t"))
    assert consumers.find_subscription("g", "t").sub_string == "*"
    consumers.remove(consumers.find_client("g", "x").connection)
    consumers.expire_compensations(1000)
    assert consumers.find_subscription("g", "t").sub_string == "a"
    consumers.expire_compensations(1001)
    assert consumers.find_subscription("g", "t") is None


def test_producers_come_and_go():
    producers = ProducerManager()
    a, b = client("a"), client("b")
    producers.register("g", a)
    producers.register("inner", a)
    producers.register("g", b)
    assert [each.client_id for each in producers.members("g")] == ["a", "b"]
    assert {group: len(members) for group, members in producers.all().items()} == {
        "g": 2,
        "inner": 1,
    }
    producers.unregister("g", a.connection)
    assert producers.find_client("a") is a
    producers.unregister("inner", a.connection)
    assert producers.find_client("a") is None
    producers.remove(b.connection)
    assert producers.all() == {}
    producers.unregister("g", b.connection)


def test_a_client_that_connects_anew_is_found_by_its_new_connection():
    producers = ProducerManager()
    old, new = client("a", FakeConnection("1")), client("a", FakeConnection("2"))
    producers.register("g", old)
    producers.register("g", new)
    producers.remove(old.connection)
    assert producers.find_client("a") is new


def test_members_of_a_producer_group_take_turns_those_that_read_first():
    producers = ProducerManager()
    assert producers.next_member("g") is None
    members = [client(name) for name in "abc"]
    for member in members:
        producers.register("g", member)
    assert {producers.next_member("g").client_id for _ in range(3)} == {"a", "b", "c"}
    members[0].connection.is_writable = False
    assert {producers.next_member("g").client_id for _ in range(6)} == {"b", "c"}
    members[1].connection.is_open = members[2].connection.is_open = False
    assert producers.next_member("g") is not None
    members[0].connection.is_open = False
    assert producers.next_member("g") is None


def test_silent_producers_are_forgotten():
    producers = ProducerManager()
    a = client("a", now=1000)
    producers.register("g", a)
    producers.register("g", client("b", now=3000))
    producers.register("g", client("a", a.connection, 2000))
    assert producers.expire(2000) == []
    assert producers.expire(2001) == [a.connection]
    assert [each.client_id for each in producers.members("g")] == ["b"]


def queues(*numbers):
    return [MessageQueue("t", "b", number) for number in numbers]


def test_a_queue_is_locked_by_one_member_for_a_minute():
    now = [0]
    locks = RebalanceLockManager(lambda: now[0])
    assert locks.lock("g", queues(0, 1), "a") == set(queues(0, 1))
    assert locks.lock("g", queues(1, 2), "b") == set(queues(2))
    assert locks.lock("h", queues(1), "b") == set(queues(1))
    now[0] = 60_000
    assert locks.lock("g", queues(0), "a") == set(queues(0))
    assert locks.lock("g", queues(1), "b") == set()
    now[0] = 60_001
    assert locks.lock("g", queues(0, 1), "b") == set(queues(1))
    assert not locks.is_lock_all_expired("g")
    now[0] = 200_000
    assert locks.is_lock_all_expired("g")
    assert locks.is_lock_all_expired("nobody")


def test_only_who_has_a_lock_gives_it_up():
    locks = RebalanceLockManager(lambda: 0)
    locks.lock("g", queues(0, 1), "a")
    locks.unlock("g", queues(0), "b")
    assert locks.lock("g", queues(0), "b") == set()
    locks.unlock("g", queues(0, 1, 7), "a")
    assert locks.lock("g", queues(0, 1), "b") == set(queues(0, 1))
    locks.lock("g", queues(2), "a")
    locks.unlock("g", None, "b")
    assert locks.lock("g", queues(0, 1, 2), "c") == set(queues(0, 1))


def test_many_threads_lock_a_queue_one_has_it():
    locks = RebalanceLockManager(lambda: 0)
    got = []

    def work(name):
        if locks.lock("g", queues(0), name):
            got.append(name)

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


# Members of consumer groups on a whole broker: which queues they read, which notices they get.


class Member:
    """A push consumer that records its messages and the queues it was given."""

    def __init__(self, served, group, *, orderly=False):
        self.bodies = []
        config = ClientConfig(served.namesrv_addr, persist_consumer_offset_interval_ms=100)
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        # Members rebalance only on notice of the broker, not on their own while a test runs.
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
    """Return how many queues each member has locked, sorted."""
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
