# SPDX-License-Identifier: Apache-2.0
"""A broker with queues, groups, offsets and locks in memory, sufficient for consumers."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import defaultdict
from typing import Any

from rmqnet.client.message_queue import MessageQueue
from rmqnet.client.received_messages import messages_from_body
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.frame_codec import encode_frame
from rmqnet.remoting.remoting_command import ONEWAY_FLAG, RemotingCommand
from store_core.codec.message_codec import encode_message, properties_to_bytes, string_to_properties
from store_core.codec.message_id import parse_host
from store_core.message import Message
from store_core.topics import RETRY_PREFIX, RETRY_TOPIC
from tests.rmqnet.scripted_cluster import (
    ScriptedCluster,
    ScriptedServer,
    ScriptedTopic,
    answer,
    success,
)

_HOST = parse_host("127.0.0.1:10911")
_PULL_MOST = 32
_LOOK_S = 0.003


class SlowCommits:
    """How many commits of a topic had begun, in total and at each answer."""

    def __init__(self) -> None:
        self.begun = 0
        self.begun_when_answered: list[int] = []


class ScriptedQueues:
    """The broker ``broker-a`` of a scripted cluster; a test may replace any of its answers.

    A group's retry topic exists after its first heartbeat. Messages that are sent back are
    delivered again immediately.
    """

    def __init__(self, cluster: ScriptedCluster, name: str = "broker-a") -> None:
        self.cluster = cluster
        self.name = name
        self.server: ScriptedServer = cluster.broker(name)
        self.records: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.first_offsets: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.locks: dict[tuple[str, str, int], str] = {}
        self.members: defaultdict[str, list[str]] = defaultdict(list)
        self.pulled_from = 0  # the broker id that pull answers suggest
        self._guard = threading.Lock()
        self._position = 0
        codes = RequestCode
        self.server.answers.update(
            {
                codes.HEART_BEAT: self._heartbeat,
                codes.UNREGISTER_CLIENT: self._unregister,
                codes.PULL_MESSAGE: self._pull,
                codes.QUERY_CONSUMER_OFFSET: self._query_offset,
                codes.UPDATE_CONSUMER_OFFSET: self._update_offset,
                codes.GET_MAX_OFFSET: self._max_offset,
                codes.GET_MIN_OFFSET: self._min_offset,
                codes.SEARCH_OFFSET_BY_TIMESTAMP: self._search_offset,
                codes.GET_CONSUMER_LIST_BY_GROUP: self._consumer_list,
                codes.LOCK_BATCH_MQ: self._lock,
                codes.UNLOCK_BATCH_MQ: self._unlock,
                codes.CONSUMER_SEND_MSG_BACK: self._send_back,
                codes.SEND_MESSAGE_V2: self._send,
                codes.CHECK_CLIENT_CONFIG: success,
            }
        )

    def put(
        self,
        topic: str,
        queue_id: int,
        *bodies: bytes,
        properties: dict[str, str] | None = None,
        reconsume_times: int = 0,
        sys_flag: int = 0,
    ) -> None:
        """Append messages; the store time is the message's position in the log."""
        given = properties or {}
        with self._guard:
            records = self.records[topic, queue_id]
            for body in bodies:
                offset = self.first_offsets[topic, queue_id] + len(records)
                unique = {"UNIQ_KEY": f"{topic}/{queue_id}/{offset}"}
                record = encode_message(
                    topic=topic.encode(),
                    body=body,
                    properties_raw=properties_to_bytes({**unique, **given}.items()),
                    commit_log_offset=self._position,
                    queue_offset=offset,
                    queue_id=queue_id,
                    born_timestamp=1,
                    born_host=_HOST,
                    store_timestamp=self._position,
                    store_host=_HOST,
                    reconsume_times=reconsume_times,
                    sys_flag=sys_flag,
                )
                self._position += len(record)
                records.append(record)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the offsets of a group by queue id."""
        return {
            queue_id: offset
            for (its_group, its_topic, queue_id), offset in self.offsets.items()
            if (its_group, its_topic) == (group, topic)
        }

    def queues(self, topic: str, count: int) -> list[MessageQueue]:
        return [MessageQueue(topic, self.name, queue_id) for queue_id in range(count)]

    def messages(self, topic: str, queue_id: int = 0) -> list[Message]:
        """Return the messages of a queue."""
        return messages_from_body(b"".join(self.records[topic, queue_id]), "test")

    def slow_commits(self, topic: str) -> SlowCommits:
        """Answer commits for a topic late, so that others can arrive meanwhile."""
        commits = SlowCommits()

        async def slow(request: RemotingCommand) -> RemotingCommand:
            if request.ext_fields["topic"] == topic:
                commits.begun += 1
                await asyncio.sleep(0.05)
                commits.begun_when_answered.append(commits.begun)
            return self._update_offset(request)

        self.server.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = slow
        return commits

    async def _heartbeat(self, request: RemotingCommand) -> RemotingCommand:
        data = json.loads(request.body)
        for group in [each["groupName"] for each in data["consumerDataSet"]]:
            self.cluster.topics.setdefault(RETRY_PREFIX + group, ScriptedTopic({self.name: 1}))
            if data["clientID"] not in self.members[group]:
                self.members[group].append(data["clientID"])
                self._tell(group)
        return success(request)

    async def _unregister(self, request: RemotingCommand) -> RemotingCommand:
        group = request.ext_fields.get("consumerGroup")
        if group is not None and request.ext_fields["clientID"] in self.members[group]:
            self.members[group].remove(request.ext_fields["clientID"])
            self._tell(group)
        return success(request)

    def _tell(self, group: str) -> None:
        code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        command = RemotingCommand(code, {"consumerGroup": group}, flag=ONEWAY_FLAG)
        for writer in self.server._writers:
            writer.write(encode_frame(command))

    async def _pull(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        place = fields["topic"], int(fields["queueId"])
        offset, waits = int(fields["queueOffset"]), int(fields["sysFlag"]) & 2
        deadline = time.monotonic() + int(fields["suspendTimeoutMillis"]) / 1000
        while True:
            first = self.first_offsets[place]
            end = first + len(self.records[place])
            if not first <= offset <= end:
                moved = first if offset < first else end
                return self._pulled(request, ResponseCode.PULL_OFFSET_MOVED, moved, first, end)
            records = self.records[place][offset - first :][:_PULL_MOST]
            records = records[: int(fields["maxMsgNums"])]
            if records:
                break
            if not waits or time.monotonic() > deadline:
                return self._pulled(request, ResponseCode.PULL_NOT_FOUND, offset, first, end)
            await asyncio.sleep(_LOOK_S)
        next_offset = offset + len(records)
        body = b"".join(records)
        return self._pulled(request, ResponseCode.SUCCESS, next_offset, first, end, body)

    def _pulled(
        self,
        request: RemotingCommand,
        code: int,
        next_offset: int,
        first: int,
        end: int,
        body: bytes = b"",
    ) -> RemotingCommand:
        return answer(
            request,
            code,
            body=body,
            nextBeginOffset=next_offset,
            minOffset=first,
            maxOffset=end,
            suggestWhichBrokerId=self.pulled_from,
        )

    def _query_offset(self, request: RemotingCommand) -> RemotingCommand:
        offset = self.offsets.get(_group_place(request))
        if offset is None:
            return answer(request, ResponseCode.QUERY_NOT_FOUND, "Not found")
        return success(request, offset=offset)

    def _update_offset(self, request: RemotingCommand) -> RemotingCommand:
        self.offsets[_group_place(request)] = int(request.ext_fields["commitOffset"])
        return success(request)

    def _max_offset(self, request: RemotingCommand) -> RemotingCommand:
        place = request.ext_fields["topic"], int(request.ext_fields["queueId"])
        return success(request, offset=self.first_offsets[place] + len(self.records[place]))

    def _min_offset(self, request: RemotingCommand) -> RemotingCommand:
        place = request.ext_fields["topic"], int(request.ext_fields["queueId"])
        return success(request, offset=self.first_offsets[place])

    def _search_offset(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        messages = self.messages(fields["topic"], int(fields["queueId"]))
        timestamp = int(fields["timestamp"])
        before = sum(each.store_timestamp < timestamp for each in messages)
        return success(request, offset=before)

    def _consumer_list(self, request: RemotingCommand) -> RemotingCommand:
        members = self.members[request.ext_fields["consumerGroup"]]
        if not members:
            return answer(request, ResponseCode.SYSTEM_ERROR, "no consumer for this group")
        return success(request, json.dumps({"consumerIdList": members}).encode())

    def _lock(self, request: RemotingCommand) -> RemotingCommand:
        group, client_id, queues = _lock_body(request)
        for each in queues:
            self.locks.setdefault((group, each["topic"], each["queueId"]), client_id)
        locked = [
            each
            for each in queues
            if self.locks[group, each["topic"], each["queueId"]] == client_id
        ]
        return success(request, json.dumps({"lockOKMQSet": locked}).encode())

    def _unlock(self, request: RemotingCommand) -> RemotingCommand:
        group, client_id, queues = _lock_body(request)
        for each in queues:
            place = group, each["topic"], each["queueId"]
            if self.locks.get(place) == client_id:
                del self.locks[place]
        return success(request)

    def _send_back(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        for messages in [self.messages(*place) for place in list(self.records)]:
            for each in messages:
                if each.commit_log_offset == int(fields["offset"]):
                    topic = each.properties.get(RETRY_TOPIC, each.topic)
                    self.put(
                        RETRY_PREFIX + fields["group"],
                        0,
                        each.body,
                        properties={**each.properties, RETRY_TOPIC: topic},
                        reconsume_times=each.reconsume_times + 1,
                    )
        return success(request)

    def _send(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        self.put(
            fields["b"],
            int(fields["e"]),
            request.body,
            properties=string_to_properties(fields["i"].encode()),
            reconsume_times=int(fields["j"]),
        )
        return success(request, msgId="0" * 32, queueId=fields["e"], queueOffset=0)


def _group_place(request: RemotingCommand) -> tuple[str, str, int]:
    fields = request.ext_fields
    return fields["consumerGroup"], fields["topic"], int(fields["queueId"])


def _lock_body(request: RemotingCommand) -> tuple[str, str, list[dict[str, Any]]]:
    data = json.loads(request.body)
    return data["consumerGroup"], data["clientId"], data["mqSet"]
