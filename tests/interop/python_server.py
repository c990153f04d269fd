# SPDX-License-Identifier: Apache-2.0
"""Our name server or broker as a process: ``python -m tests.interop.python_server``.

Takes the commands of ``server-node`` (oracle/cluster/README.md) from standard input.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rmqnet
from rmqnet.namesrv.name_server import NameServer
from rmqnet.namesrv.name_server_config import NameServerConfig
from tests.interop.obedient_process import JsonNode

OURS = "ours"
"""The name of this project in the place of a RocketMQ release."""

QUICK_SETTINGS = {
    "brokerName": "broker-a",
    "brokerClusterName": "DefaultCluster",
    "enablePropertyFilter": True,
    "waitTimeMillsInSendQueue": 10_000,
    "osPageCacheBusyTimeOutMills": 10_000,
    "diskMaxUsedSpaceRatio": 95,
    "fileReservedTime": 100_000,
    "flushConsumerOffsetInterval": 1000,
    "flushDelayOffsetInterval": 1000,
    "mappedFileSizeTimerLog": 1 << 20,
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 2000,
    "transactionCheckMax": 3,
    "transactionOpBatchInterval": 500,
}
"""Default settings of a broker, those of ``LocalCluster.quickSettings``."""


class PythonServer(JsonNode):
    """A process that becomes a name server or a broker.

    Parameters
    ----------
    directory
        For the files of the process; created here.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, [sys.executable, "-m", "tests.interop.python_server"])


class _Node:
    """Runs the commands, each of which is a method."""

    def __init__(self) -> None:
        self._broker: rmqnet.ServedStore | None = None

    def name_server(self, port: int, directory: str) -> dict[str, Any]:
        Path(directory).mkdir(parents=True, exist_ok=True)
        config = NameServerConfig(port=port, kv_config_path=f"{directory}/kvConfig.json")
        self._name_server = NameServer(config)
        return {"port": self._name_server.start()}

    def broker(
        self, store: str, port: int, namesrv_addr: str, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        given = {**QUICK_SETTINGS, **settings}
        self._broker = rmqnet.serve(store, port=port, namesrv_addr=namesrv_addr, settings=given)
        self._broker.start()
        return {"settings": given}

    def stop(self) -> dict[str, Any]:
        if self._broker is not None:
            self._broker.shutdown()
        return {}


def main() -> None:
    """Run commands until the input ends."""
    node = _Node()
    for line in sys.stdin:
        given = json.loads(line)
        try:
            answer = {"answer": getattr(node, given.pop("do"))(**given)}
        except Exception as err:
            traceback.print_exc()
            answer = {"error": f"{type(err).__name__}: {err}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
