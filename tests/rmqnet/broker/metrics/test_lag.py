from __future__ import annotations

import pytest

from rmqnet.broker.metrics.broker_collector import Lag, lags
from store_core import Message
from store_core.config.config_files import SubscriptionGroupConfig, TopicConfig
from tests.rmqnet.broker.client_broker import ClientBroker


@pytest.fixture
def parts(tmp_path):
    with ClientBroker(tmp_path) as running:
        broker = running.broker
        broker.topics.update(TopicConfig("orders", 2, 2), {})
        for queue_id, count in ((0, 5), (1, 3)):
            for _ in range(count):
                running.store.put_message(Message("orders", b"tea", queue_id=queue_id))
        running.store.wait_for_dispatch()
        broker.groups.update(SubscriptionGroupConfig("cooks"), {})
        yield broker


def test_a_group_without_members_is_behind_from_where_it_was(parts):
    parts.offsets.commit("cooks", "orders", 0, 2)
    parts.offsets.commit_pull("cooks", "orders", 0, 4)
    (found,) = lags(parts)
    assert (found.group, found.topic) == ("cooks", "orders")
    assert (found.behind, found.inflight) == (3, 2)  # of the other queue nothing is noted
    assert found.latency_ms >= found.queueing_ms >= 0


def test_one_that_has_all_is_not_behind(parts):
    for queue_id, end in ((0, 5), (1, 3)):
        parts.offsets.commit("cooks", "orders", queue_id, end)
    assert list(lags(parts)) == [Lag("cooks", "orders", 0, 0, 0, 0)]


def test_offsets_after_the_end_are_no_lag(parts):
    parts.offsets.commit("cooks", "orders", 0, 500)
    parts.offsets.commit_pull("cooks", "orders", 0, 900)
    (found,) = lags(parts)
    assert (found.behind, found.inflight) == (0, 0)


def test_topics_that_are_gone_and_groups_that_read_nothing_are_left_out(parts):
    parts.offsets.commit("cooks", "gone", 0, 1)
    assert list(lags(parts)) == []
