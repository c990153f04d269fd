"""How far timer messages are, for slaves: 60, 61."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqnet.broker.processor.bodies import json_answer
from rmqnet.broker.processor.message_checks import RefusedError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.config.data_version import DataVersion
from store_core.files.store_directory import StoreDirectory
from store_core.layout.store_paths import CONFIG_DIR, TIMER_CHECKPOINT_FILE
from store_core.layout.timer import TIMER_CHECKPOINT

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from rmqnet.broker.processor.admin_broker import AdminHandler


class AdminTimers:
    """Describes how far the timer is, as it was saved last."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> dict[RequestCode, AdminHandler]:
        """Return what works on which requests."""
        return {
            RequestCode.GET_TIMER_CHECK_POINT: self.checkpoint,
            RequestCode.GET_TIMER_METRICS: self.metrics,
        }

    def checkpoint(self, request: RemotingCommand) -> RemotingCommand:
        """Return how far the timer is (60)."""
        directory, size = StoreDirectory(self._broker.topics.root), TIMER_CHECKPOINT.size
        path = directory.resolve(CONFIG_DIR, TIMER_CHECKPOINT_FILE)
        data = directory.read_head(path, size)
        if data is None or len(data) < size:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return RemotingCommand.response_to(request, ResponseCode.SUCCESS, body=data)

    def metrics(self, request: RemotingCommand) -> RemotingCommand:
        """Return how many messages of each topic wait (61): they are not counted by topic."""
        return json_answer(request, {"dataVersion": DataVersion().to_json(), "timingCount": {}})
