# SPDX-License-Identifier: Apache-2.0
"""This project's store as replication master or slave: ``python -m tests.interop.python_replica``.

Takes the commands of `replica` from standard input, and answers each with a line of JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from store_core import Message, MessageStore, MessageStoreConfig
from store_core.errors import StoreClosedError
from store_core.ha.ha_client import HAClient
from store_core.ha.ha_service import HAService
from tests.interop.replica import Replica

_OURS = ("master", "nudge", "ack", "firstOffset", "cut")
_TAGS = ("TagA", "TagB", "größe")
_TOPICS, _QUEUES = 3, 4


class PythonReplica(Replica):
    """A Python process that has one store open at a time."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, [sys.executable, "-m", "tests.interop.python_replica"])


class _Node:
    """Runs the commands, each of which is a method."""

    def __init__(self) -> None:
        self._putters: list[threading.Thread] = []
        self._putting = False
        self._statuses: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._closing = ExitStack()
        self._store: MessageStore
        self._service: HAService | None = None
        self._client: HAClient | None = None

    def open(self, root: str, port: str, role: str, *words: str) -> dict[str, Any]:
        options = dict(word.split("=", 1) for word in words)
        settings = {key: value for key, value in options.items() if key not in _OURS}
        config = MessageStoreConfig.from_properties(
            {**settings, "storePathRootDir": root, "brokerRole": role}
        )
        self._closing = ExitStack()
        self._service = self._client = None
        self._statuses.clear()
        self._store = self._closing.enter_context(MessageStore(config))
        if role == "SLAVE":
            given = {"cut": True} if options.get("cut") == "true" else {}
            if "firstOffset" in options:
                given["first_offset"] = int(options["firstOffset"])
            ack = options.get("ack", "flushed")
            client = HAClient(self._store, options["master"], ack=ack, **given)
            self._client = self._closing.enter_context(client)
        else:
            service = HAService(self._store, port=int(port))
            self._service = self._closing.enter_context(service)
        return self._state("opened")

    def put(self, count: str, seed: str, *words: str) -> dict[str, Any]:
        options = dict(word.split("=", 1) for word in words)
        threads, rate = int(options.get("threads", "1")), int(options.get("rate", "0"))
        pause = threads / rate if rate else 0
        journal = options.get("journal")
        file = os.open(journal, os.O_CREAT | os.O_WRONLY | os.O_APPEND) if journal else -1
        self._putting = True
        self._putters = [
            threading.Thread(
                target=self._put_some, args=(range(i, int(count), threads), int(seed), pause, file)
            )
            for i in range(threads)
        ]
        for putter in self._putters:
            putter.start()
        return {"event": "putting"}

    def join(self) -> dict[str, Any]:
        for putter in self._putters:
            putter.join()
        self._putters = []
        return self._state("put")

    def state(self) -> dict[str, Any]:
        return self._state("state")

    def wait(self, offset: str, seconds: str) -> dict[str, Any]:
        if self._client is not None:
            there = self._client.wait_for(int(offset), float(seconds))
        else:
            there = self._store.wait_for_dispatch() and self._store.max_phy_offset >= int(offset)
        return self._state("reached" if there else "late")

    def stop(self) -> dict[str, Any]:
        self._putting = False
        self.join()
        self._closing.close()
        return {"event": "stopped"}

    def _put_some(self, numbers: range, seed: int, pause: float, journal: int) -> None:
        for number in numbers:
            if not self._putting:
                return
            message = _message(seed, number)
            result = self._store.put_message(message)
            with self._counting:
                self._statuses[result.status.name] += 1
            written = result.append_result
            if journal >= 0 and result.status.name == "PUT_OK" and written is not None:
                line = f"K{seed}-{number} {written.commit_log_offset} {written.store_size}\n"
                os.write(journal, line.encode())
            if pause:
                time.sleep(pause)

    def _state(self, event: str) -> dict[str, Any]:
        service, client = self._service, self._client
        with self._counting:
            statuses = dict(self._statuses)
        return {
            "event": event,
            **self._offsets(),
            "connections": len(service.slaves()) if service else 0,
            "slave_acknowledged_offset": service.push_to_slave_max_offset if service else 0,
            "statuses": statuses,
            "failure": str(client.failure) if client and client.failure else None,
            "error": client.state().error if client else None,
        }

    def _offsets(self) -> dict[str, int]:
        store, names = self._store, ("min_phy_offset", "max_phy_offset", "dispatch_behind_bytes")
        try:
            return {name: getattr(store, name) for name in names}
        except StoreClosedError:  # while its log is cut
            return dict.fromkeys(names, -1)


def _message(seed: int, number: int) -> Message:
    chance = random.Random(f"{seed}/{number}")
    key = f"K{seed}-{number}"
    size = chance.randrange(30_000) if chance.randrange(50) == 0 else chance.randrange(900)
    return Message(
        f"replicated{chance.randrange(_TOPICS)}",
        f"{key} {'x' * size}".encode(),
        queue_id=chance.randrange(_QUEUES),
        keys=[key, "shared"] if chance.randrange(3) == 0 else [key],
        tags=chance.choice(_TAGS) if chance.randrange(4) else None,
        unique_key=f"U{key}",
    )


def main() -> None:
    """Run commands until the input ends."""
    node = _Node()
    for line in sys.stdin:
        command, *words = line.split()
        try:
            answer = getattr(node, command)(*words)
        except Exception as err:  # the sender of the command decides what the error means
            answer = {"event": "error", "message": repr(err)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
