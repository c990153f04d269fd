# SPDX-License-Identifier: Apache-2.0
"""Our name server and broker, in a process: ``python -m bench.broker_side ROOT TOPIC=QUEUES …``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import rmqnet
from bench.side_process import tell, until_input_ends
from rmqnet.cpu_affinity import on_one_core
from store_core.config.config_files import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a store, as ``rocketmq-store serve`` does, until its input ends; print the port."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("topics", nargs="*")
    options = parser.parse_args(arguments)
    served = rmqnet.serve(options.root, settings={"brokerName": "broker-a"})
    with on_one_core(), served as cluster:
        for topic in options.topics:
            name, _, queues = topic.partition("=")
            config = TopicConfig(name, int(queues), int(queues))
            cluster.controller.broker.topics.update(config, {})
        tell("listening", port=int(cluster.namesrv_addr.rpartition(":")[2]))
        until_input_ends()


if __name__ == "__main__":
    main()
