# SPDX-License-Identifier: Apache-2.0
"""Scripted brokers that serve the records of golden stores, byte for byte, as a broker would."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqnet.client.message_queue import MessageQueue
from rmqnet.client.queue_json import to_queue_json
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.filter.sql_filter import SqlFilter
from store_core.layout import SYS_FLAG_AT, header_layout
from tests.golden_store import GoldenStore
from tests.rmqnet.scripted_cluster import ScriptedCluster, ScriptedServer, answer, success
from tests.rmqsource.reading import read_rows

_COLUMNS = (
    *("topic", "queue_id", "queue_offset", "commit_log_offset", "store_size", "store_timestamp"),
    *("tags", "keys", "unique_key", "properties"),
)
_TIME = struct.Struct(">q")
BATCH_ATTRIBUTES = {"queue.type": "BatchCQ"}


@dataclass
class Record:
    """A record in a queue: its first queue offset, and the number of its messages."""

    first: int
    data: bytes
    store_ms: int
    rows: list[dict[str, Any]] = field(default_factory=list)

    def store_at(self, store_ms: int) -> None:
        """Return the record with another store time."""
        self.store_ms = store_ms
        at = header_layout(self.data[SYS_FLAG_AT + 3]).at("store_timestamp")
        self.data = b"".join([self.data[:at], _TIME.pack(store_ms), self.data[at + _TIME.size :]])

    @property
    def stop(self) -> int:
        return self.first + len(self.rows)


class RecordedQueue:
    """Records of one queue, in order; ``min_offset`` may be raised, as if messages had expired."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.min_offset = records[0].first if records else 0
        self.hidden = 0

    @property
    def max_offset(self) -> int:
        """The end; the last ``hidden`` records do not exist (yet, or any more)."""
        seen = self.records[: len(self.records) - self.hidden]
        return seen[-1].stop if seen else self.min_offset

    def seen(self) -> list[Record]:
        end = self.max_offset
        return [r for r in self.records if self.min_offset < r.stop <= end]


def recorded_queues(
    store: GoldenStore, access: str = "consumequeue"
) -> dict[tuple[str, int], RecordedQueue]:
    """Return the queues of a golden store with their records' bytes."""
    log = {int(path.name): path.read_bytes() for path in _segments(store)}
    queues: dict[tuple[str, int], dict[int, Record]] = {}
    rows = read_rows(store.root, _COLUMNS, access=access, **store.options)
    for row in sorted(rows, key=lambda row: row["queue_offset"]):
        at = row["commit_log_offset"]
        segment = max(start for start in log if start <= at)
        data = log[segment][at - segment : at - segment + row["store_size"]]
        ms = int(row["store_timestamp"].timestamp() * 1000)
        records = queues.setdefault((row["topic"], row["queue_id"]), {})
        records.setdefault(at, Record(row["queue_offset"], data, ms)).rows.append(row)
    return {key: RecordedQueue(list(found.values())) for key, found in queues.items()}


def _segments(store: GoldenStore) -> Iterator[Path]:
    directories = store.config_properties.get("storePathCommitLog", "commitlog").split(",")
    for directory in directories:
        yield from (p for p in (store.root / directory).iterdir() if p.name.isdigit())


class RecordedBroker:
    """One broker of a cluster.

    ``pull_limit`` is the broker's own; ``failures`` are codes that answer the next pulls, with
    ``remark``.
    """

    def __init__(self, server: ScriptedServer, queues: dict[tuple[str, int], RecordedQueue]):
        self.server, self.queues = server, queues
        self.pull_limit = 32
        self.index_limit = 64
        self.index_answers: list[int] = []
        self.has_sql = True
        self.is_4x = False
        self.attributes: dict[str, dict[str, str]] = {}
        self.failures: list[int] = []
        self.remark = "told to fail"
        self.committed: dict[tuple[str, str, int], int] = {}
        server.answers.update(
            {
                RequestCode.PULL_MESSAGE: self._pull,
                RequestCode.GET_MAX_OFFSET: self._max_offset,
                RequestCode.GET_MIN_OFFSET: self._min_offset,
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
                RequestCode.QUERY_MESSAGE: self._query,
                RequestCode.GET_TOPIC_CONFIG: self._topic_config,
                RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
                RequestCode.GET_ALL_CONSUMER_OFFSET: self._all_offsets,
                RequestCode.GET_TOPIC_STATS_INFO: self._topic_stats,
                RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            }
        )

    def queue(self, request: RemotingCommand) -> RecordedQueue:
        fields = request.ext_fields
        key = (fields["topic"], int(fields["queueId"]))
        return self.queues.get(key) or RecordedQueue([])

    def _topic_stats(self, request: RemotingCommand) -> RemotingCommand:
        wanted = request.ext_fields["topic"]
        table = {
            MessageQueue(topic, "any", queue_id): {
                "minOffset": queue.min_offset,
                "maxOffset": queue.max_offset,
                "lastUpdateTimestamp": queue.seen()[-1].store_ms if queue.seen() else 0,
            }
            for (topic, queue_id), queue in self.queues.items()
            if topic == wanted
        }
        return success(request, to_queue_json({"offsetTable": table}).encode())

    def _view(self, request: RemotingCommand) -> RemotingCommand:
        at = int(request.ext_fields["offset"])
        for queue in self.queues.values():
            for record in queue.seen():
                if record.rows[0].get("commit_log_offset") == at:
                    return success(request, record.data)
        return answer(request, ResponseCode.SYSTEM_ERROR, f"can not find message by offset {at}")

    def _max_offset(self, request: RemotingCommand) -> RemotingCommand:
        return success(request, offset=self.queue(request).max_offset)

    def _min_offset(self, request: RemotingCommand) -> RemotingCommand:
        return success(request, offset=self.queue(request).min_offset)

    def _search(self, request: RemotingCommand) -> RemotingCommand:
        """As 5.3.3: the first at or after the time; as 4.9.7: any of that time, or the nearest."""
        queue, wanted = self.queue(request), int(request.ext_fields["timestamp"])
        records = queue.seen()
        later = [r.first for r in records if r.store_ms >= wanted]
        if not self.is_4x:
            return success(request, offset=later[0] if later else queue.max_offset)
        return success(request, offset=_searched_as_4x(records, wanted))

    def _topic_config(self, request: RemotingCommand) -> RemotingCommand:
        if self.is_4x:
            return answer(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 351")
        attributes = self.attributes.get(request.ext_fields["topic"], {})
        return success(request, json.dumps({"attributes": attributes}).encode())

    def _commit(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        key = (fields["consumerGroup"], fields["topic"], int(fields["queueId"]))
        self.committed[key] = int(fields["commitOffset"])
        return success(request)

    def _all_offsets(self, request: RemotingCommand) -> RemotingCommand:
        table: dict[str, dict[str, int]] = {}
        for (group, topic, queue_id), offset in self.committed.items():
            table.setdefault(f"{topic}@{group}", {})[str(queue_id)] = offset
        return success(request, json.dumps({"offsetTable": table}).encode())

    def _pull(self, request: RemotingCommand) -> RemotingCommand:
        if self.failures:
            return answer(request, self.failures.pop(0), self.remark)
        queue, fields = self.queue(request), request.ext_fields
        at, most = int(fields["queueOffset"]), int(fields["maxMsgNums"])
        ends = {"minOffset": queue.min_offset, "maxOffset": queue.max_offset}
        ends["suggestWhichBrokerId"] = 0
        if at < queue.min_offset:
            return _moved(request, queue.min_offset, ends)
        if at > queue.max_offset or (at and not queue.seen()):
            return _moved(request, queue.max_offset, ends)
        records = [r for r in queue.seen() if r.stop > at]
        if not records:
            return answer(request, ResponseCode.PULL_NOT_FOUND, nextBeginOffset=at, **ends)
        if records[0].first > at:  # it was deleted from the log
            return _passed(request, records[0].first, ends)
        wanted = self._filter(request)
        if wanted is None:
            remark = "The broker does not support consumer to filter message by SQL92"
            return answer(request, ResponseCode.SYSTEM_ERROR, remark)
        return self._found(request, records, wanted, min(most, self.pull_limit), ends)

    def _found(self, request, records, wanted, most, ends) -> RemotingCommand:
        found: list[Record] = []
        at = records[0].first
        for record in records:
            if len(found) >= most:
                break
            at = record.stop
            if wanted(record):
                found.append(record)
        if not found:
            return _passed(request, at, ends)
        body = b"".join(record.data for record in found)
        return success(request, body, nextBeginOffset=at, **ends)

    def _filter(self, request: RemotingCommand) -> Any:
        text = request.ext_fields.get("subscription", "*")
        if text == "*":
            return lambda record: True
        if request.ext_fields["expressionType"] == "TAG":
            tags = {tag.strip() for tag in text.split("||")}
            return lambda record: record.rows[0]["tags"] in tags
        if not self.has_sql:
            return None
        sql = SqlFilter(text)
        return lambda record: sql.matches(dict(record.rows[0]["properties"]))

    def _query(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        begin, end = int(fields["beginTimestamp"]), int(fields["endTimestamp"])
        found = [
            record
            for (topic, _), queue in self.queues.items()
            for record in queue.seen()
            if topic == fields["topic"]
            and begin <= record.store_ms // 1000 * 1000 <= end
            and any(_has_key(row, fields["key"]) for row in record.rows)
        ]
        found.sort(key=lambda record: -record.rows[0]["commit_log_offset"])
        if not found:
            return answer(request, ResponseCode.QUERY_NOT_FOUND, "can not find message")
        most = min(int(fields["maxNum"]), self.index_limit)
        body = b"".join(record.data for record in found[:most])
        self.index_answers.append(len(body))
        times = {"indexLastUpdateTimestamp": 0, "indexLastUpdatePhyoffset": 0}
        return success(request, body, **times)


def _searched_as_4x(records: list[Record], wanted: int) -> int:
    low, high, left, right = 0, len(records) - 1, None, None
    while low <= high:
        middle = records[(low + high) // 2]
        if middle.store_ms == wanted:
            return middle.first
        if middle.store_ms > wanted:
            high, right = (low + high) // 2 - 1, middle
        else:
            low, left = (low + high) // 2 + 1, middle
    near = [record for record in (left, right) if record is not None]
    return min(near, key=lambda r: abs(r.store_ms - wanted)).first if near else 0


def _has_key(row: dict[str, Any], key: str) -> bool:
    return key in (row["keys"] or ()) or key == row["unique_key"]


def _passed(request: RemotingCommand, stop: int, ends: dict[str, int]) -> RemotingCommand:
    return answer(request, ResponseCode.PULL_RETRY_IMMEDIATELY, nextBeginOffset=stop, **ends)


def _moved(request: RemotingCommand, stop: int, ends: dict[str, int]) -> RemotingCommand:
    return answer(request, ResponseCode.PULL_OFFSET_MOVED, nextBeginOffset=stop, **ends)


class RecordedCluster(ScriptedCluster):
    """A cluster whose brokers serve golden stores."""

    def serve(
        self, store: GoldenStore, name: str = "broker-a", access: str = "consumequeue"
    ) -> RecordedBroker:
        """Add a broker with all queues of a store."""
        broker = RecordedBroker(self.broker(name), recorded_queues(store, access))
        for topic, queue_id in broker.queues:
            self.add_queue(topic, queue_id, name)
        return broker

    def add_queue(self, topic: str, queue_id: int, name: str) -> None:
        if topic not in self.topics:
            self.add_topic(topic, queues={name: queue_id + 1})
        queues = self.topics[topic].queues
        queues[name] = max(queues.get(name, 0), queue_id + 1)

    def options(self, **more: object) -> dict[str, str]:
        """Return the options for a read of this cluster, with short timeouts."""
        given = {"namesrvAddr": self.namesrv_addr, "retryTimeout": "5s", **more}
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in given.items()
        }


def without_store(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in the order of their places, without the columns that depend on the cluster."""
    place = ("topic", "queue_id", "queue_offset", "commit_log_offset")
    ordered = sorted(rows, key=lambda row: tuple(row[name] for name in place))
    return [{name: v for name, v in row.items() if name != "store"} for row in ordered]
