# SPDX-License-Identifier: Apache-2.0
"""A read-only store on the network: live, crashed, damaged; nothing in it changes."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqnet import Admin, ConsumeFromWhere, PushConsumer, PushConsumerOptions, serve
from rmqnet.client.received_messages import messages_from_body
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core import Message, MessageStore, MessageStoreConfig, StoreConfigError, StoreFormatError
from store_core.config.lenient_json import parse_lenient_json
from store_core.layout import TRANSACTION_COMMIT_TYPE
from tests.golden_store import golden
from tests.rmqnet.broker.small_broker import pull_header, send_header
from tests.rmqnet.remoting.raw_client import RawClient

SUSPEND = 2 | 4


def files_of(root):
    found = {}
    for path in [root, *root.rglob("*")]:
        entry = path.stat()
        found[path] = (entry.st_mtime_ns, entry.st_ctime_ns, entry.st_size)
    return found


def write_config(root, name, text):
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_text(text)


@contextmanager
def asked(served):
    with RawClient(served.controller.config.listen_port) as client:
        yield client


def bodies(answer):
    return [message.body for message in messages_from_body(answer.body, "")]


def root_of(store):
    return Path(store.config.store_path_root_dir)


def commit(client, group, topic, queue_id, offset):
    client.request(pull_header(topic, queue_id, offset, consumer_group=group))  # creates the group
    header = UpdateConsumerOffsetRequestHeader(group, topic, queue_id, offset)
    assert client.request(header).code == ResponseCode.SUCCESS


def committed(client, group, topic, queue_id):
    answer = client.request(QueryConsumerOffsetRequestHeader(group, topic, queue_id))
    if answer.code != ResponseCode.SUCCESS:
        return None
    return decode_header(QueryConsumerOffsetResponseHeader, answer.ext_fields).offset


@pytest.fixture
def live(tmp_path):
    """Return an open store with messages of a topic that is missing in topics.json."""
    config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path / "store"), mapped_file_size_commit_log=1 << 20
    )
    with MessageStore(config) as store:
        for number in range(6):
            store.put_message(Message("t", b"%d" % number, queue_id=number % 2))
        store.wait_for_dispatch()
        yield store


@pytest.fixture
def served(live):
    with serve(live.config.store_path_root_dir, read_only=True) as found:
        yield found


class TestLive:
    def test_topics_are_known_by_their_queues(self, served):
        topic = served.controller.role.topics.select("t")
        assert (topic.read_queue_nums, topic.write_queue_nums) == (2, 2)
        with Admin(served.namesrv_addr) as admin:
            assert admin.route("t").queue_datas[0].read_queue_nums == 2

    def test_what_is_there_and_what_comes(self, live, served):
        with asked(served) as client:
            assert bodies(client.request(pull_header("t", 0, 0))) == [b"0", b"2", b"4"]
            waiting = pull_header("t", 0, 3, sys_flag=SUSPEND, suspend_timeout_millis=600_000)
            empty = pull_header("t", 0, 3)
            assert client.request(empty).code == ResponseCode.PULL_NOT_FOUND
            client.send(RemotingCommand.request(waiting))
            live.put_message(Message("t", b"late", queue_id=0))
            assert bodies(client.receive()) == [b"late"]

    def test_a_topic_that_comes(self, live, served):
        live.put_message(Message("new", b"first", queue_id=1))
        deadline = time.monotonic() + 10
        with asked(served) as client:
            while client.request(pull_header("new", 1, 0)).code != ResponseCode.SUCCESS:
                assert time.monotonic() < deadline
                time.sleep(0.005)
        with Admin(served.namesrv_addr) as admin:
            assert admin.route("new").queue_datas[0].read_queue_nums == 2

    @pytest.mark.parametrize(
        ("request_header", "code"),
        [
            (send_header("t"), RequestCode.SEND_MESSAGE_V2),
            (send_header("t"), RequestCode.SEND_BATCH_MESSAGE),
            (send_header("t"), RequestCode.SEND_REPLY_MESSAGE_V2),
            (ConsumerSendMsgBackRequestHeader(0, "g", 0), None),
            (EndTransactionRequestHeader("p", 0, 0, TRANSACTION_COMMIT_TYPE, ""), None),
        ],
    )
    def test_what_is_refused_and_why(self, live, served, request_header, code):
        end = live.max_phy_offset
        with asked(served) as client:
            changes = {} if code is None else {"code": int(code)}
            answer = client.request(request_header, b"body", **changes)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "only reads its store" in answer.remark
        assert live.max_phy_offset == end

    def test_a_group_reads_all(self, served):
        got = []
        options = PushConsumerOptions(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)

        def take(messages, _):
            got.extend(message.body for message in messages)

        with PushConsumer("g", served.namesrv_addr, take, options=options) as consumer:
            consumer.subscribe("t")
            deadline = time.monotonic() + 10
            while len(got) < 6:
                assert time.monotonic() < deadline
                time.sleep(0.005)
        assert sorted(got) == [b"%d" % number for number in range(6)]
        assert served.controller.role.topics.select("%RETRY%g") is not None

    def test_topics_json_that_changes(self, live, served):
        table = {"told": {"topicName": "told", "readQueueNums": 3, "perm": 6}}
        write_config(root_of(live), "topics.json", json.dumps({"topicConfigTable": table}))
        topics = served.controller.role.topics
        deadline = time.monotonic() + 10
        while topics.select("told") is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert topics.select("told").read_queue_nums == 3
        assert topics.select("t") is not None


class TestLying:
    def test_nothing_changes_in_a_crashed_store(self, tmp_path):
        store = golden("crashed-5x", recovered=False)
        before = files_of(store.root)
        settings = {**store.config_properties, "brokerName": "rescued"}
        file = tmp_path / "offsets.json"
        with serve(store.root, read_only=True, offsets_file=file, settings=settings) as served:
            counts, _ = served.controller.role.store.queue_counts()
            topic = max(counts)
            with asked(served) as client:
                client.request(pull_header(topic, 0, 0))
                commit(client, "g", topic, 0, 2)
                assert client.request(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
                assert client.request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == 16
        assert files_of(store.root) == before
        table = parse_lenient_json(file.read_text())["offsetTable"]
        assert table[f"{topic}@g"] == {0: 2}

    def test_damage_is_named_and_the_other_queue_goes_on(self, live):
        root = root_of(live)
        live.shutdown()
        segment = root / "commitlog" / f"{0:020d}"
        with segment.open("r+b") as log:
            log.write(bytes(4))
        with serve(root, read_only=True) as served, asked(served) as client:
            answer = client.request(pull_header("t", 0, 0))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert str(segment) in answer.remark
            assert bodies(client.request(pull_header("t", 0, 1))) == [b"2", b"4"]
            assert bodies(client.request(pull_header("t", 1, 0))) == [b"1", b"3", b"5"]

    def test_an_unreadable_topics_file_is_done_without(self, live):
        root = root_of(live)
        write_config(root, "topics.json", "{{{")
        with serve(root, read_only=True) as served, asked(served) as client:
            assert bodies(client.request(pull_header("t", 1, 0))) == [b"1", b"3", b"5"]


class TestOffsets:
    def test_they_are_those_of_the_store_then_those_of_the_file(self, live, tmp_path):
        root, file = root_of(live), tmp_path / "kept" / "offsets.json"
        known = {"offsetTable": {"t@g": {0: 1, 1: 2}, "t@h": {0: 3}}}
        write_config(root, "consumerOffset.json", json.dumps(known))
        for expected in (1, 2):
            with serve(root, read_only=True, offsets_file=file) as served, asked(served) as client:
                assert committed(client, "g", "t", 0) == expected
                assert committed(client, "h", "t", 0) == 3
                commit(client, "g", "t", 0, 2)
        with serve(root, read_only=True) as served, asked(served) as client:
            assert committed(client, "g", "t", 0) == 1
        assert (tmp_path / "kept" / "offsets.json.bak").exists()

    def test_a_file_that_cannot_be_read_is_not_overwritten(self, live, tmp_path):
        file = tmp_path / "offsets.json"
        file.write_text("{{{")
        with pytest.raises(StoreFormatError, match=r"offsets\.json"):
            serve(root_of(live), read_only=True, offsets_file=file).start()
        assert file.read_text() == "{{{"

    def test_unreadable_offsets_of_the_store_are_done_without(self, live):
        write_config(root_of(live), "consumerOffset.json", "{{{")
        with serve(root_of(live), read_only=True) as served, asked(served) as client:
            assert committed(client, "g", "t", 0) == 0  # a queue that is whole begins there

    def test_not_in_the_store(self, live):
        root = root_of(live)
        with pytest.raises(StoreConfigError, match="is in the store"):
            serve(root, read_only=True, offsets_file=root / "offsets.json")

    def test_only_where_the_store_does_not_keep_them(self, tmp_path):
        with pytest.raises(StoreConfigError, match="read_only"):
            serve(tmp_path, offsets_file=tmp_path / "f")
