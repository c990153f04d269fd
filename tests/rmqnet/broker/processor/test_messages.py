# SPDX-License-Identifier: Apache-2.0
"""Messages of producers are stored as sent, and consumers get them back."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pyarrow as pa
import pytest

from rmqnet.broker.clients.client_channel_info import ClientChannelInfo
from rmqnet.broker.processor.admin_groups import AdminGroups
from rmqnet.broker.processor.queue_offsets import queue_begin
from rmqnet.client.heartbeat_data import ConsumerData, SubscriptionData
from rmqnet.client.message_queue import MessageQueue
from rmqnet.client.received_messages import messages_from_body
from rmqnet.client.send_result import PullStatus
from rmqnet.errors import BrokerError
from rmqnet.remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmqnet.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    QueryMessageRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core import Message
from store_core.config.config_files import SubscriptionGroupConfig
from store_core.errors import StoreWriteError
from store_core.layout import TRANSACTION_COMMIT_TYPE
from store_core.services import reput_message, service_thread
from tests.rmqnet.broker.client_broker import FakeConnection
from tests.rmqnet.broker.small_broker import BORN, SmallBroker, pull_header, send_header
from tests.rmqnet.scripted_cluster import wait_until

FOREVER_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with SmallBroker(tmp_path_factory.mktemp("store"), enable_property_filter=True) as found:
        yield found


@pytest.fixture
def topic(broker, request):
    name = "t_" + str(abs(hash(request.node.name)))
    broker.add_topic(name)
    return name


def _messages(broker, result):
    return messages_from_body(result.body, broker.address)


def _pulled(broker, topic, queue_id=0, **fields):
    broker.store.wait_for_dispatch()
    result = broker.pull(topic, queue_id, fields.pop("offset", 0), **fields)
    return result, _messages(broker, result) if result.body else []


class TestSend:
    def test_a_message_is_stored_with_what_the_broker_adds(self, broker, topic):
        sent = {"KEYS": "k1 k2", "TAGS": "a", "UNIQ_KEY": "0A" * 16, "color": "red"}
        result = broker.send(topic, b"body", sent, queue_id=2)
        assert (result.status.value, result.queue_offset) == ("SEND_OK", 0)
        assert result.queue.queue_id == 2
        assert result.transaction_id == "0A" * 16
        assert result.region_id == "DefaultRegion"
        _, (message,) = _pulled(broker, topic, 2)
        assert message.body == b"body"
        assert (message.flag, message.born_timestamp) == (7, BORN)
        assert message.message_id == result.offset_message_id
        added = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
        assert message.properties == {**sent, **added}
        assert message.born_host.startswith("127.0.0.1:")

    def test_one_without_a_unique_key_gets_one(self, broker, topic):
        result = broker.send(topic, b"x")
        _, (message,) = _pulled(broker, topic)
        assert message.unique_key == result.transaction_id
        assert len(message.unique_key) == 32

    def test_any_queue_where_the_client_leaves_it_open(self, broker, topic):
        queues = {broker.send(topic, b"x", queue_id=-1).queue.queue_id for _ in range(40)}
        assert queues <= {0, 1, 2, 3}
        assert len(queues) > 1

    def test_a_new_topic_is_made_like_the_default_one(self, broker):
        broker.send("made_by_a_send", b"x", default_topic_queue_nums=3)
        made = broker.broker.topics.select("made_by_a_send")
        assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (3, 3, 6)

    @pytest.mark.parametrize(
        ("name", "fields", "code"),
        [
            ("bad topic!", {}, ResponseCode.INVALID_PARAMETER),
            ("x" * 128, {}, ResponseCode.INVALID_PARAMETER),
            ("RMQ_SYS_TRANS_HALF_TOPIC", {}, ResponseCode.NO_PERMISSION),
            ("TBW102", {"queue_id": 99}, ResponseCode.INVALID_PARAMETER),
            ("no_such", {"default_topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ],
    )
    def test_what_is_refused(self, broker, name, fields, code):
        with pytest.raises(BrokerError) as refused:
            broker.send(name, b"x", **fields)
        assert refused.value.code == code

    def test_bodies_and_properties_have_bounds(self, broker, topic):
        with pytest.raises(BrokerError) as refused:
            broker.send(topic, b"x" * (4 * 1024 * 1024 + 1))
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
        with pytest.raises(BrokerError) as refused:
            broker.send(topic, b"x", {"long": "v" * 32768})
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL

    def test_a_field_that_is_missing_is_named(self, broker):
        command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, {"a": "P"})
        answer = broker.invoke(command)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "field b is missing" in answer.remark

    def test_a_delayed_message_is_not_in_its_topic_yet(self, broker, topic):
        broker.send(topic, b"later", {"DELAY": "2"})
        result, messages = _pulled(broker, topic)
        assert (result.status, messages) == (PullStatus.NO_NEW_MSG, [])
        assert broker.store.get_max_offset_in_queue("SCHEDULE_TOPIC_XXXX", 1) >= 1

    def test_what_was_tried_too_often_becomes_a_dead_letter(self, broker):
        for times, expected in ((3, "%RETRY%dead"), (4, "%DLQ%dead")):
            broker.send("%RETRY%dead", b"%d" % times, reconsume_times=times, max_reconsume_times=3)
            _, messages = _pulled(broker, expected, consumer_group="dead")
            assert [message.body for message in messages] == [b"%d" % times]

    def test_retries_of_a_group_with_locks_are_dead_letters_at_once(self, broker):
        broker.broker.locks.lock("orderly", [MessageQueue("t", "broker-a", 0)], "client")
        broker.send("%RETRY%orderly", b"x", reconsume_times=1, max_reconsume_times=16)
        _, (message,) = _pulled(broker, "%DLQ%orderly", consumer_group="orderly")
        assert message.properties["DELAY"] == "-1"


class TestBatch:
    def _send(self, broker, topic, bodies, properties=None):
        items = b"".join(_item(body, number) for number, body in enumerate(bodies))
        header = send_header(topic, properties, batch=True)
        code = RequestCode.SEND_BATCH_MESSAGE
        return broker.ask("send_message", header, items, message_id="", code=code)

    def test_each_message_of_a_batch(self, broker, topic):
        result = self._send(broker, topic, [b"a", b"b", b"c"], {"WAIT": "true"})
        assert result.offset_message_id.count(",") == 2
        _, messages = _pulled(broker, topic)
        assert [m.body for m in messages] == [b"a", b"b", b"c"]
        assert [m.queue_offset for m in messages] == [0, 1, 2]
        assert [m.properties["number"] for m in messages] == ["0", "1", "2"]
        assert {m.properties["CLUSTER"] for m in messages} == {"DefaultCluster"}
        assert ",".join(m.message_id for m in messages) == result.offset_message_id

    def test_a_batch_that_is_none(self, broker, topic):
        for body in (b"", b"\0" * 7, _item(b"a", 0)[:-1]):
            header = send_header(topic, batch=True)
            command = RemotingCommand.request(header, body, RequestCode.SEND_BATCH_MESSAGE)
            assert broker.invoke(command).code == ResponseCode.MESSAGE_ILLEGAL

    def test_one_that_is_too_long(self, broker, topic):
        with pytest.raises(BrokerError) as refused:
            self._send(broker, topic, [b"x" * (1 << 20)] * 5)
        assert refused.value.code == ResponseCode.SYSTEM_ERROR

    def test_no_batches_of_retries(self, broker):
        with pytest.raises(BrokerError) as refused:
            self._send(broker, "%RETRY%C", [b"a"])
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL

    def test_a_batch_queue_gets_one_record(self, broker):
        broker.broker.topics.update(_batch_topic("batches"), {"+queue.type": "BatchCQ"})
        assert queue_begin(broker.broker, "batches", 0) == -1  # as a RocketMQ broker does
        assert queue_begin(broker.broker, "T", 0) == 0
        result = self._send(broker, "batches", [b"a", b"b"], {"UNIQ_KEY": "0B" * 16})
        assert "," not in result.offset_message_id
        pulled, messages = _pulled(broker, "batches")
        assert queue_begin(broker.broker, "batches", 0) == 0
        assert [m.body for m in messages] == [b"a", b"b"]
        assert pulled.next_begin_offset == 2


def _batch_topic(name):
    from store_core.config.config_files import TopicConfig

    return TopicConfig(name, 1, 1)


def _item(body, number):
    properties = b"number\x01%d\x02" % number
    rest = (
        (0).to_bytes(8, "big")
        + (0).to_bytes(4, "big")
        + len(body).to_bytes(4, "big")
        + body
        + len(properties).to_bytes(2, "big")
        + properties
    )
    return (len(rest) + 4).to_bytes(4, "big") + rest


class TestPull:
    def test_pages_and_their_end(self, broker, topic):
        for number in range(10):
            broker.send(topic, b"%d" % number)
        first, messages = _pulled(broker, topic, max_msg_nums=6)
        assert [m.body for m in messages] == [b"%d" % n for n in range(6)]
        assert (first.next_begin_offset, first.min_offset, first.max_offset) == (6, 0, 10)
        end, _ = _pulled(broker, topic, offset=10)
        assert end.status is PullStatus.NO_NEW_MSG
        beyond, _ = _pulled(broker, topic, offset=12)
        assert (beyond.status, beyond.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 10)

    def test_tags_and_sql(self, broker, topic):
        for number in range(6):
            broker.send(topic, b"%d" % number, {"TAGS": f"t{number % 3}", "n": str(number)})
        _, tagged = _pulled(broker, topic, subscription="t1 || t2")
        assert [m.body for m in tagged] == [b"1", b"2", b"4", b"5"]
        _, chosen = _pulled(broker, topic, subscription="n > 3", expression_type="SQL92")
        assert [m.body for m in chosen] == [b"4", b"5"]
        # RocketMQ ignores the end of this one: no warning, which is an error here, for the broker.
        none, _ = _pulled(broker, topic, subscription="n LIKE '4'", expression_type="SQL92")
        assert (none.status, none.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 6)
        none, _ = _pulled(broker, topic, subscription="other")
        assert (none.status, none.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 6)

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
            ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
            (
                {"subscription": "a >", "expression_type": "SQL92"},
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            ),
        ],
    )
    def test_what_is_refused(self, broker, topic, fields, code):
        with pytest.raises(BrokerError) as refused:
            broker.pull(topic, fields.pop("queue_id", 0), 0, **fields)
        assert refused.value.code == code

    def test_an_unknown_topic(self, broker):
        with pytest.raises(BrokerError) as refused:
            broker.pull("nowhere", 0, 0)
        assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST

    def test_offsets_are_committed_with_pulls(self, broker, topic):
        _pulled(broker, topic, sys_flag=4 | 1, commit_offset=17)
        assert broker.broker.offsets.query("C", topic, 0) == 17

    def test_a_reset_is_heard_once(self, broker, topic):
        for number in range(5):
            broker.send(topic, b"%d" % number)
        broker.broker.offsets.assign_reset("C", topic, 0, 3)
        heard, _ = _pulled(broker, topic, offset=1)
        assert (heard.status, heard.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 3)
        assert heard.remark == "OFFSET_RESET"
        _, messages = _pulled(broker, topic, offset=3)
        assert [m.body for m in messages] == [b"3", b"4"]


@pytest.fixture
def lazy(broker, monkeypatch):
    """Let dispatch rest until it is woken."""
    reput = broker.store.services.reput
    monkeypatch.setattr(reput_message, "_REST_SHARE", 1e9)
    monkeypatch.setattr(reput_message, "_MAX_REST_MS", FOREVER_MS)
    monkeypatch.setattr(reput, "_interval_s", FOREVER_MS)
    yield
    monkeypatch.undo()
    reput.wakeup()


class TestLongPolling:
    def _wait(self, broker, topic, **fields):
        before = broker.pulls.holds.waiting
        fields = {"sys_flag": 6, "suspend_timeout_millis": 60_000, **fields}
        queue_id, offset = fields.pop("queue_id", 0), fields.pop("offset", 0)
        header = pull_header(topic, queue_id, offset, **fields)
        waiting = broker.submit("pull", header, timeout_s=70)
        deadline = time.monotonic() + 10
        while broker.pulls.holds.waiting == before:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return waiting

    def test_an_arrival_is_answered_at_once(self, broker, topic):
        waiting = self._wait(broker, topic)
        broker.send(topic, b"new")
        result = waiting.result(5)
        assert [m.body for m in _messages(broker, result)] == [b"new"]

    @pytest.mark.usefixtures("lazy")
    def test_one_arrival_after_the_other_is_answered_at_once(self, broker, topic):
        for offset in range(3):
            waiting = self._wait(broker, topic, offset=offset)
            broker.send(topic, b"%d" % offset)
            messages = _messages(broker, waiting.result(5))
            assert [m.body for m in messages] == [b"%d" % offset]

    @pytest.mark.usefixtures("lazy")
    def test_a_batch_is_answered_at_once(self, broker, topic):
        waiting = self._wait(broker, topic)
        broker.store.put_messages([Message(topic, b"1"), Message(topic, b"2")])
        assert [m.body for m in _messages(broker, waiting.result(5))] == [b"1", b"2"]

    @pytest.mark.usefixtures("lazy")
    @pytest.mark.parametrize("is_dispatched", [False, True])
    def test_what_comes_just_before_the_wait_is_answered_at_once(
        self, broker, topic, monkeypatch, is_dispatched
    ):
        hold, puts = broker.pulls.holds.hold, iter([b"new"])

        def put_and_hold(pull):
            for body in puts:
                broker.store.put_message(Message(topic, body))
                if is_dispatched:
                    broker.store.dispatch_soon()
                    assert broker.store.wait_for_dispatch(5)
            return hold(pull)

        monkeypatch.setattr(broker.pulls.holds, "hold", put_and_hold)
        result = broker.pull(topic, 0, 0, sys_flag=6, suspend_timeout_millis=60_000)
        assert [m.body for m in _messages(broker, result)] == [b"new"]

    def test_who_waits_does_not_drive_dispatch_that_fails(self, broker, topic, monkeypatch):
        failed, reput = [], broker.store.services.reput

        def fail(frames):
            failed.append(frames)
            raise StoreWriteError("full", "index")

        with monkeypatch.context() as patch:
            patch.setattr(broker.store._opened().files.index, "append", fail)
            patch.setattr(service_thread, "_REST_AFTER_ERROR_S", FOREVER_MS)
            broker.send(topic, b"new")
            assert _messages(
                broker, broker.pull(topic, 0, 0, sys_flag=6, suspend_timeout_millis=60_000)
            )
            waiting = self._wait(broker, topic, offset=1)
            wait_until(lambda: reput.is_failing, "dispatch fails")
            for _ in range(20):
                result = broker.pull(topic, 0, 1)
                assert result.status is PullStatus.NO_NEW_MSG
                wait_until(lambda: not reput._wake.is_set(), "the wake-up, if any, is taken")
            assert len(failed) < 10
        reput._wake.set()  # the rest after the error would be long
        assert broker.store.wait_for_dispatch(5)
        broker.send(topic, b"next")
        assert [m.body for m in _messages(broker, waiting.result(5))] == [b"next"]

    def test_who_was_answered_is_awaited_again_for_a_while(self, broker, topic):
        holds = broker.pulls.holds
        assert not holds.is_awaited(topic, 0)
        waiting = self._wait(broker, topic)
        assert holds.is_awaited(topic, 0)
        assert not holds.is_awaited(topic, 1)
        broker.send(topic, b"new")
        waiting.result(5)
        answered = time.monotonic()
        while holds.is_awaited(topic, 0):
            assert time.monotonic() < answered + 5
        holds.run_once()
        assert (topic, 0) not in holds._answered

    def test_pulls_of_many_queues_are_resumed_together(self, broker, topic, monkeypatch):
        holds, resumed = broker.pulls.holds, []
        resume = holds._resume
        monkeypatch.setattr(holds, "_resume", lambda pulls: resumed.append(pulls) or resume(pulls))
        broker.store.wait_for_dispatch()
        waiting = [self._wait(broker, topic, queue_id=number) for number in range(3)]
        batch = pa.RecordBatch.from_pydict(
            {"topic": [topic] * 3, "queue_id": pa.array(range(3), pa.int32()), "body": [b"x"] * 3}
        )
        broker.store.append_batch(batch)
        assert all(_messages(broker, each.result(5)) for each in waiting)
        assert [len(pulls) for pulls in resumed] == [3]

    def test_arrivals_in_other_queues_wake_nobody(self, broker, topic):
        waiting = self._wait(broker, topic)
        broker.send(topic, b"other", queue_id=1)
        broker.store.wait_for_dispatch()
        assert not waiting.done()
        broker.send(topic, b"own")
        assert waiting.result(5).body

    def test_what_does_not_match_is_waited_over(self, broker, topic):
        waiting = self._wait(broker, topic, subscription="wanted")
        for _ in range(3):
            broker.send(topic, b"other", {"TAGS": "other"})
        broker.send(topic, b"this", {"TAGS": "wanted"})
        result = waiting.result(5)
        assert [m.body for m in _messages(broker, result)] == [b"this"]
        assert result.next_begin_offset == 4

    def test_when_the_time_is_over(self, broker, topic):
        waiting = self._wait(broker, topic, suspend_timeout_millis=1)
        deadline = time.monotonic() + 5
        while not waiting.done():
            broker.pulls.holds.run_once()
            assert time.monotonic() < deadline
        assert waiting.result().status is PullStatus.NO_NEW_MSG

    def test_it_hears_of_what_is_forbidden_meanwhile(self, broker, topic):
        group = SubscriptionGroupConfig("forbidden_meanwhile")
        broker.broker.groups.update(group, {})
        waiting = self._wait(broker, topic, consumer_group=group.group_name)
        broker.broker.groups.update(replace(group, consume_enable=False), {})
        broker.send(topic, b"secret")
        with pytest.raises(BrokerError) as refused:
            waiting.result(5)
        assert refused.value.code == ResponseCode.NO_PERMISSION

    def test_a_group_that_may_not_read_a_topic_is_refused(self, broker, topic):
        name = "may_not_read"
        broker.broker.groups.update(SubscriptionGroupConfig(name), {})
        member = ClientChannelInfo(FakeConnection(), "c", LanguageCode.JAVA, 479, BORN)
        data = ConsumerData(name, subscriptions=(SubscriptionData(topic),))
        broker.broker.consumers.register(member, data)
        forbid = UpdateGroupForbiddenRequestHeader(name, topic, readable=False)
        AdminGroups(broker.broker).forbid(RemotingCommand.request(forbid))
        pull = pull_header(topic, 0, 0, consumer_group=name, sys_flag=0)
        with pytest.raises(BrokerError, match="is forbidden for topic") as refused:
            broker.submit("pull", pull, timeout_s=5).result(5)
        assert refused.value.code == ResponseCode.NO_PERMISSION

    def test_it_hears_of_a_topic_that_is_deleted(self, broker, topic):
        waiting = self._wait(broker, topic)
        broker.broker.topics.delete(topic)
        broker.pulls.holds.release_all()
        with pytest.raises(BrokerError) as refused:
            waiting.result(5)
        assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST

    def test_what_a_new_subscription_wants_is_not_passed_over(self, broker, topic):
        group = "subscribes_more"
        member = ClientChannelInfo(FakeConnection(), "c", LanguageCode.JAVA, 479, BORN)

        def subscribe(expression, version):
            told = SubscriptionData(topic, expression, sub_version=version)
            data = ConsumerData(group, subscriptions=(told,))
            broker.broker.consumers.register(member, data)

        subscribe("a", 1)
        waiting = self._wait(broker, topic, consumer_group=group, sys_flag=2, sub_version=1)
        broker.send(topic, b"b", {"TAGS": "b"})
        held = broker.pulls.holds._held
        wait_until(lambda: [p.offset for p in held.get((topic, 0), [])] == [1], "it waits on")
        subscribe("a||b", 2)
        broker.send(topic, b"a", {"TAGS": "a"})
        assert [m.body for m in _messages(broker, waiting.result(5))] == [b"b", b"a"]

    def test_many_at_once_lose_nothing(self, broker, topic):
        got = []

        def drain():
            at = 0
            while at < 300:
                result = broker.pull(
                    topic, 0, at, sys_flag=6, suspend_timeout_millis=9_000, max_msg_nums=3
                )
                got.extend(m.body for m in _messages(broker, result) if result.body)
                at = result.next_begin_offset

        reader = threading.Thread(target=drain)
        reader.start()
        for number in range(300):
            broker.send(topic, b"%d" % number)
        reader.join(20)
        assert not reader.is_alive()
        assert got == [b"%d" % number for number in range(300)]


class TestQueries:
    def test_by_key_and_by_unique_key(self, broker, topic):
        broker.send(topic, b"one", {"KEYS": "same", "UNIQ_KEY": "0C" * 16})
        broker.send(topic, b"two", {"KEYS": "same", "UNIQ_KEY": "0D" * 16})
        broker.store.wait_for_dispatch()
        header = QueryMessageRequestHeader(topic, "same", 32, 0, 1 << 60)
        assert [m.body for m in _messages(broker, broker.ask("query_message", header))] == [
            b"one",
            b"two",
        ]
        header = QueryMessageRequestHeader(topic, "0D" * 16, 1, 0, 1 << 60)
        assert [m.body for m in _messages(broker, broker.ask("query_message", header))] == [b"two"]
        header = QueryMessageRequestHeader(topic, "none", 32, 0, 1 << 60)
        assert broker.ask("query_message", header).body == b""

    def test_by_type_of_index(self, broker, topic):
        # What 5.5 indexes for the tag "red" equals what it indexes for such a key.
        broker.send(topic, b"red", {"KEYS": "T#red", "UNIQ_KEY": "0E" * 16})
        broker.store.wait_for_dispatch()
        for index_type, bodies in (("T", [b"red"]), ("K", []), ("U", []), ("", [])):
            header = QueryMessageRequestHeader(
                topic, "red", 32, 0, 1 << 60, index_type=index_type, last_key="any"
            )
            answer = broker.ask("query_message", header)
            assert [m.body for m in _messages(broker, answer)] == bodies

    def test_by_place(self, broker, topic):
        broker.send(topic, b"here")
        _, (message,) = _pulled(broker, topic)
        record = broker.ask("view_message", topic, message.commit_log_offset)
        assert messages_from_body(record, "")[0].body == b"here"
        with pytest.raises(BrokerError, match="can not find message by the offset"):
            broker.ask("view_message", topic, message.commit_log_offset + 1)


def test_a_message_that_comes_back_is_tried_again(broker, topic):
    broker.send(topic, b"again", {"TAGS": "a"})
    _, (message,) = _pulled(broker, topic)
    for level, place in ((0, ("SCHEDULE_TOPIC_XXXX", 2)), (-1, ("%DLQ%C", 0))):
        before = broker.store.get_max_offset_in_queue(*place)
        back = ConsumerSendMsgBackRequestHeader(
            offset=message.commit_log_offset, group="C", delay_level=level, origin_topic=topic
        )
        assert broker.invoke(RemotingCommand.request(back)).code == ResponseCode.SUCCESS
        broker.store.wait_for_dispatch()
        assert broker.store.get_max_offset_in_queue(*place) == before + 1
    stored = broker.store.get_message("C", "%DLQ%C", 0, before, 1).messages[0]
    assert (stored.body, stored.reconsume_times) == (b"again", 1)
    assert stored.properties["RETRY_TOPIC"] == topic
    assert stored.properties["ORIGIN_MESSAGE_ID"] == message.message_id


def test_transactions(broker, topic):
    prepared = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "0E" * 16}
    result = broker.send(topic, b"half", prepared, sys_flag=4, queue_id=1)
    assert _pulled(broker, topic, 1)[1] == []
    place = int(result.offset_message_id[-16:], 16)
    header = EndTransactionRequestHeader(
        producer_group="P",
        tran_state_table_offset=result.queue_offset,
        commit_log_offset=place,
        commit_or_rollback=TRANSACTION_COMMIT_TYPE,
        from_transaction_check=False,
        msg_id="0E" * 16,
        transaction_id=result.transaction_id,
    )
    assert broker.invoke(RemotingCommand.request(header)).code == ResponseCode.SUCCESS
    _, (message,) = _pulled(broker, topic, 1)
    assert message.body == b"half"
    assert isinstance(message, Message)
