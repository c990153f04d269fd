# SPDX-License-Identifier: Apache-2.0
"""Our master or our slave in a process of its own: ``python -m bench.replica_side COMMAND …``.

Each process runs until its standard input ends. ``bench/java`` has the same commands.
"""

from __future__ import annotations

import argparse
import threading
import time
from typing import TYPE_CHECKING, Any

from bench.message_batches import message
from bench.side_process import SideError, tell, until_input_ends
from store_core import HAClient, HAService, MessageStore, MessageStoreConfig, PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

_POLL_SECONDS = 0.001
_SLAVE_SECONDS = 60
_KEPT_HOURS = 24 * 365


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one side."""
    options = _parser().parse_args(arguments)
    options.run(options)


def _master(options: argparse.Namespace) -> None:
    """Serve a store as it is."""
    with _store(options.root) as store, HAService(store, port=0) as service:
        tell("listening", port=_port(service), count=store.max_phy_offset)
        until_input_ends()


def _slave(options: argparse.Namespace) -> None:
    """Follow a master; print the time until the log reaches ``end``, and until it is dispatched."""
    with _store(options.root, broker_role="SLAVE") as store:
        count = options.end - store.max_phy_offset
        begin = time.perf_counter()
        with HAClient(store, options.master, ack=options.ack) as client:
            if options.end:
                _wait(lambda: store.max_phy_offset >= options.end, client)
                tell("log", count=count, seconds=time.perf_counter() - begin)
                _wait(lambda: store.dispatch_behind_bytes <= 0, client)
                tell("dispatched", count=count, seconds=time.perf_counter() - begin)
            until_input_ends()


def _put(options: argparse.Namespace) -> None:
    """Put messages while a slave follows; with ``--sync`` the slave must receive them first."""
    settings = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2} if options.sync else {}
    with _store(options.root, **settings) as store, HAService(store, port=0) as service:
        tell("listening", port=_port(service), count=0)
        deadline = time.monotonic() + _SLAVE_SECONDS
        while options.slaves and len(service.slaves()) < options.slaves:
            _check_time(deadline, "no slave came")
            time.sleep(_POLL_SECONDS)
        for number in range(options.rounds):
            seconds = _put_all(store, options.count, options.body_bytes, options.threads)
            tell("put", count=options.count, seconds=seconds, round=number)
        while options.slaves and service.push_to_slave_max_offset < store.max_phy_offset:
            _check_time(deadline + _SLAVE_SECONDS, "the slave did not come to the end")
            time.sleep(_POLL_SECONDS)
        tell("followed", count=options.slaves)
        until_input_ends()


def _put_all(store: MessageStore, count: int, body_bytes: int, threads: int) -> float:
    """Return the seconds until all messages were acknowledged."""
    body = bytes(body_bytes)
    failed: list[PutMessageStatus] = []

    def put(first: int) -> None:
        for number in range(first, count, threads):
            status = store.put_message(message(number, body)).status
            if status is not PutMessageStatus.PUT_OK:
                failed.append(status)

    running = [threading.Thread(target=put, args=(first,)) for first in range(threads)]
    begin = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    seconds = time.perf_counter() - begin
    if failed:
        raise SideError(f"{len(failed)} of {count} puts failed: {failed[0].name}")
    return seconds


def _store(root: str, **settings: Any) -> MessageStore:
    config = MessageStoreConfig(
        store_path_root_dir=root, file_reserved_time=_KEPT_HOURS, **settings
    )
    return MessageStore(config)


def _port(service: HAService) -> int:
    return int(service.address.rpartition(":")[2])


def _wait(is_there: Any, client: HAClient) -> None:
    while not is_there():
        if client.failure is not None:
            raise client.failure
        time.sleep(_POLL_SECONDS)


def _check_time(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise SideError(what)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.replica_side", description=__doc__)
    commands = parser.add_subparsers(required=True)
    master = commands.add_parser("master", help=_master.__doc__)
    master.add_argument("root")
    master.set_defaults(run=_master)
    slave = commands.add_parser("slave", help=_slave.__doc__)
    slave.add_argument("root")
    slave.add_argument("master", metavar="HOST:PORT")
    slave.add_argument("end", type=int, help="0: only follow")
    slave.add_argument("ack")
    slave.set_defaults(run=_slave)
    put = commands.add_parser("put", help=_put.__doc__)
    put.add_argument("root")
    put.add_argument("count", type=int)
    put.add_argument("body_bytes", type=int)
    put.add_argument("threads", type=int)
    put.add_argument("--sync", action="store_true")
    put.add_argument("--slaves", type=int, default=0, help="to wait for before the first put")
    put.add_argument("--rounds", type=int, default=1)
    put.set_defaults(run=_put)
    return parser


if __name__ == "__main__":
    main()
