# SPDX-License-Identifier: Apache-2.0
"""Settings and figures of a broker, for administrators: 25, 26, 28, 306, 315, 329, 907."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqnet.broker.broker_config import config_text, parse_config_text
from rmqnet.broker.processor.admin_broker import AdminProcessor
from rmqnet.broker.processor.bodies import json_answer
from rmqnet.broker.processor.message_checks import RefusedError, open_store
from rmqnet.remoting.codes import V5_3_3, RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    GetBrokerConfigResponseHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.request_processor import answers
from store_core.config.data_version import DataVersion
from store_core.config.message_store_config import KEYS, MessageStoreConfig, as_java_reads
from store_core.errors import StoreConfigError
from store_core.files.store_directory import StoreDirectory
from store_core.layout import CONFIG_DIR, SCHEDULE_TOPIC, TIMER_CHECKPOINT, TIMER_CHECKPOINT_FILE
from store_core.message_store import NO_TRANSIENT_POOL, MessageStore
from store_core.topics import TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.broker.broker import Broker

logger = logging.getLogger(__name__)
_LIVE_STORE_KEYS = (
    "defaultQueryMaxNum",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInMemory",
    "maxTransferBytesOnMessageInDisk",
    "maxTransferCountOnMessageInDisk",
    "maxFilterMessageSize",
    "accessMessageInMemoryMaxRatio",
    "travelCqFileNumWhenGetMessage",
    "flushDelayOffsetInterval",
)
"""Settings of a store that take effect immediately, as they are read at each use."""
_KIB = 1024
_UNITS = "KMGTPE"


class AdminRuntime(AdminProcessor):
    """Describes the broker, and changes its settings."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._lock = threading.Lock()
        self._version = DataVersion(timestamp=broker.clock())

    @answers(RequestCode.UPDATE_BROKER_CONFIG)
    def update_config(self, request: RemotingCommand) -> RemotingCommand:
        """Change settings for this run (25); values that RocketMQ cannot parse are ignored."""
        properties = _parsed(parse_config_text(request.body.decode()))
        broker = self._broker
        refused = [
            *broker.config.fixed_keys(properties),
            *(key for key in properties if key in KEYS and key not in _LIVE_STORE_KEYS),
        ]
        if refused:
            remark = f"{', '.join(refused)}: cannot be changed while the broker runs"
            raise RefusedError(ResponseCode.NO_PERMISSION, remark)
        with self._lock:
            self._update_store(properties)
            broker.config.update(properties)
            self._version = self._version.next(broker.clock())
        logger.info("settings were changed: %s", properties)
        if "brokerPermission" in properties:
            broker.topics.touch()
        return request.success()

    @answers(RequestCode.GET_BROKER_CONFIG)
    def config(self, request: RemotingCommand) -> RemotingCommand:
        """Return all settings (26)."""
        version = json.dumps(self._version.to_json(), separators=(",", ":"))
        body = config_text(self._broker.config, self._broker.store.config).encode()
        header = GetBrokerConfigResponseHeader(version)
        return request.success(header, body)

    @answers(RequestCode.GET_BROKER_RUNTIME_INFO)
    def runtime_info(self, request: RemotingCommand) -> RemotingCommand:
        """Return figures (28)."""
        broker = self._broker
        table = {
            **self._store_figures(),
            **({} if broker.stats is None else broker.stats.runtime_info()),
            **self._pool_sizes(),
            **self._schedule_offsets(),
            **self._timer_figures(),
            "brokerActive": "true",
            "brokerVersion": str(V5_3_3),
            "brokerVersionDesc": "V5_3_3",
            "commitLogDirCapacity": _capacity(broker.topics.root),
            "earliestMessageTimeStamp": str(self._earliest_time()),
            "startAcceptSendRequestTimeStamp": str(
                broker.config.start_accept_send_request_time_stamp
            ),
        }
        return json_answer(request, {"table": table})

    @answers(RequestCode.VIEW_BROKER_STATS_DATA)
    def stats_data(self, request: RemotingCommand) -> RemotingCommand:
        """Return the counts of a topic or group in the last minute, hour and day (315)."""
        header = decode_header(ViewBrokerStatsDataRequestHeader, request.ext_fields)
        items, name, key = self._broker.stats_items, header.stats_name, header.stats_key
        data = None if items is None else items.data(name, key)
        if data is None:
            remark = f"The stats <{name}> <{key}> not exist"
            raise RefusedError(ResponseCode.SYSTEM_ERROR, remark)
        return json_answer(request, data)

    @answers(RequestCode.GET_BROKER_HA_STATUS)
    def ha_status(self, request: RemotingCommand) -> RemotingCommand:
        """Return the progress of the slaves, or of this slave (907)."""
        return json_answer(request, self._broker.ha_status())

    @answers(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    def clean_queues(self, request: RemotingCommand) -> RemotingCommand:
        """Delete files of queues whose messages are gone (306)."""
        open_store(self._broker).services.clean_consume_queue.run_once()
        return request.success()

    @answers(RequestCode.DELETE_EXPIRED_COMMITLOG)
    def delete_segments(self, request: RemotingCommand) -> RemotingCommand:
        """Delete expired segments of the log soon, at any hour of the day (329)."""
        open_store(self._broker).services.clean_commit_log.execute_delete_files_manually()
        return request.success()

    def _update_store(self, properties: Mapping[str, str]) -> None:
        wanted = {key: text for key, text in properties.items() if key in KEYS}
        if wanted:
            store = self._broker.store
            found = MessageStoreConfig.from_properties(wanted)
            values = {KEYS[key]: getattr(found, KEYS[key]) for key in wanted}
            store.config = replace(store.config, **values)

    def _store_figures(self) -> dict[str, str]:
        store = self._broker.store
        if not isinstance(store, MessageStore):  # read-only
            return {
                "commitLogMaxOffset": str(store.max_phy_offset),
                "commitLogMinOffset": str(store.min_phy_offset),
                "remainTransientStoreBufferNumbs": str(NO_TRANSIENT_POOL),
            }
        return {
            **store.runtime_info(),
            "dispatchBehindBytes": str(store.dispatch_behind_bytes),
            "pageCacheLockTimeMills": str(store.lock_time_ms),
            "remainTransientStoreBufferNumbs": str(store.remain_transient_store_buffer_nums),
            "remainHowManyDataToFlush": human_bytes(store.max_phy_offset - store.flushed_where),
        }

    def _pool_sizes(self) -> dict[str, str]:
        pools = self._pools
        named = {
            "sendThreadPoolQueue": pools.send,
            "pullThreadPoolQueue": pools.pull,
            "queryThreadPoolQueue": pools.query,
        }
        sizes = {}
        for name, pool in named.items():
            sizes[f"{name}Size"] = str(pool.waiting)
            sizes[f"{name}Capacity"] = str(pool.capacity)
            sizes[f"{name}HeadWaitTimeMills"] = str(pool.head_wait_ms)
        sizes["EndTransactionQueueSize"] = str(pools.transaction.waiting)
        sizes["EndTransactionThreadPoolQueueCapacity"] = str(pools.transaction.capacity)
        return sizes

    def _schedule_offsets(self) -> dict[str, str]:
        delays, store = self._broker.delays, self._broker.store
        if delays is None:
            return {}
        return {
            f"scheduleMessageOffset_{level}": (
                f"{offset},{store.get_max_offset_in_queue(SCHEDULE_TOPIC, level - 1)}"
            )
            for level, offset in delays.offsets.items()
        }

    def _timer_figures(self) -> dict[str, str]:
        timers, store = self._broker.timers, self._broker.store
        rates = dict.fromkeys(("timerEnqueueTps", "timerDequeueTps"), "0.0")
        if timers is None or not timers.is_running:
            whole = ("timerReadBehind", "timerOffsetBehind", "timerCongestNum")
            return {**dict.fromkeys(whole, "0"), **rates}
        behind_ms = max(self._broker.clock() - timers.read_ms, 0)
        return {
            "timerReadBehind": str(behind_ms // 1000),
            "timerOffsetBehind": str(
                store.get_max_offset_in_queue(TIMER_TOPIC, 0) - timers.queue_offset
            ),
            "timerCongestNum": str(timers.waiting),
            **rates,
        }

    def _earliest_time(self) -> int:
        store = self._broker.store
        message = store.look_stored_message(max(store.min_phy_offset, 0))
        return -1 if message is None else message.store_timestamp


def _parsed(properties: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for key, text in properties.items():
        try:
            found[key] = as_java_reads(key, text, "a request to change settings")
        except StoreConfigError as err:
            logger.warning("%s is not changed: %s", key, err)
    return found


def human_bytes(count: int) -> str:
    """Return a number of bytes as RocketMQ displays it: ``1.5 KiB``."""
    if count < _KIB:
        return f"{count} B"
    steps = (count.bit_length() - 1) // 10
    return f"{count / _KIB**steps:.1f} {_UNITS[steps - 1]}iB"


def _capacity(path: str) -> str:
    usage = shutil.disk_usage(path)
    return f"Total : {human_bytes(usage.total)}, Free : {human_bytes(usage.free)}."


class AdminTimers(AdminProcessor):
    """Describes the progress of the timer, as last saved."""

    @answers(RequestCode.GET_TIMER_CHECK_POINT)
    def checkpoint(self, request: RemotingCommand) -> RemotingCommand:
        """Return the timer's checkpoint (60)."""
        directory, size = StoreDirectory(self._broker.topics.root), TIMER_CHECKPOINT.size
        path = directory.resolve(CONFIG_DIR, TIMER_CHECKPOINT_FILE)
        data = directory.read_head(path, size)
        if data is None or len(data) < size:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return request.success(body=data)

    @answers(RequestCode.GET_TIMER_METRICS)
    def metrics(self, request: RemotingCommand) -> RemotingCommand:
        """Return an empty table of waiting messages (61), which are not counted by topic."""
        return json_answer(request, {"dataVersion": DataVersion().to_json(), "timingCount": {}})
