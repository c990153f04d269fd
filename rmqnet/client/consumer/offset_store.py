# SPDX-License-Identifier: Apache-2.0
"""A group's offsets in memory, persisted on brokers or in a file.

Source: RocketMQ ``RemoteBrokerOffsetStore``, ``LocalFileOffsetStore``, ``ControllableOffset``
(release 5.3.3).
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rmqnet.client.queue_json import parse_queue_offsets, to_queue_json
from rmqnet.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Collection

    from rmqnet.client.message_queue import MessageQueue

logger = logging.getLogger(__name__)


class OffsetKeeper(Protocol):
    """Persistent storage of offsets."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the stored offset of a queue; None if it has none.

        Raises
        ------
        RemotingError, BrokerError, ClientError
            The offset cannot be read now.
        """

    async def write(self, offsets: dict[MessageQueue, int], *, wait: bool) -> None:
        """Store offsets; those of other queues stay. Failures are logged; the next call retries.

        With ``wait``, the offsets are stored when this returns, so later reads see them.
        """


class OffsetStore:
    """Offsets of a consumer's queues; any thread may use it, coroutines run in the event loop."""

    def __init__(self, keeper: OffsetKeeper) -> None:
        self._keeper = keeper
        self._guard = threading.Lock()
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def update(self, queue: MessageQueue, offset: int, *, only_forward: bool) -> None:
        """Set a queue's offset; without effect while the queue is frozen."""
        with self._guard:
            if self._frozen and queue in self._frozen:
                return
            known = self._offsets.get(queue) if only_forward else None
            if known is not None and offset <= known:
                return
            self._offsets[queue] = offset

    def update_and_freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset that running listeners cannot change until `remove`."""
        with self._guard:
            self._offsets[queue] = offset
            self._frozen.add(queue)

    def get(self, queue: MessageQueue) -> int | None:
        """Return a queue's offset in memory; None if it has none."""
        return self._offsets.get(queue)

    def table(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Return a copy of the offsets, for one topic or (if None) for all."""
        with self._guard:
            return {
                queue: offset
                for queue, offset in self._offsets.items()
                if topic is None or queue.topic == topic
            }

    def remove(self, queue: MessageQueue) -> None:
        """Remove a queue from memory; its stored offset stays."""
        with self._guard:
            self._offsets.pop(queue, None)
            self._frozen.discard(queue)

    async def read(self, queue: MessageQueue) -> int | None:
        """Read the stored offset and use it from now on; errors as in `OffsetKeeper.read`."""
        offset = await self._keeper.read(queue)
        if offset is not None:
            self.update(queue, offset, only_forward=False)
        return offset

    async def persist(self, queues: Collection[MessageQueue], *, wait: bool = False) -> None:
        """Store the offsets of these queues; see `OffsetKeeper.write`."""
        wanted = set(queues)
        offsets = {queue: offset for queue, offset in self.table().items() if queue in wanted}
        if offsets:
            await self._keeper.write(offsets, wait=wait)


class LocalFileOffsets:
    """Offsets in the file and format that RocketMQ's own clients use for broadcasting.

    The file is ``DIRECTORY/CLIENT_ID/GROUP/offsets.json``. Its previous version is
    ``offsets.json.bak``, which is read if the file is missing, empty or damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._backup = path.with_name(path.name + ".bak")

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the offset in the file; ClientError if neither file is valid."""
        return self._load().get(queue)

    async def write(self, offsets: dict[MessageQueue, int], *, wait: bool = True) -> None:
        """Rewrite the file, including the other queues in it."""
        del wait
        try:
            table = {**self._load(), **offsets}
            text = to_queue_json({"offsetTable": table})
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists():
                self._replace(self._backup, self._path.read_bytes())
            self._replace(self._path, text.encode())
        except (OSError, ClientError) as err:
            logger.error("cannot save offsets: %s", err)  # noqa: TRY400 (the text says all)

    def _load(self) -> dict[MessageQueue, int]:
        try:
            text = self._text(self._path)
            return parse_queue_offsets(text) if text else self._load_backup()
        except ValueError as err:
            logger.warning("%s is not a file of offsets (%s): reading its backup", self._path, err)
            return self._load_backup()

    def _load_backup(self) -> dict[MessageQueue, int]:
        text = self._text(self._backup)
        try:
            return parse_queue_offsets(text) if text else {}
        except ValueError as err:
            raise ClientError(
                f"neither {self._path} nor {self._backup} is a file of offsets: {err}; repair "
                "one, or remove both to start over"
            ) from err

    @staticmethod
    def _text(path: Path) -> str:
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    @staticmethod
    def _replace(path: Path, content: bytes) -> None:
        new = path.with_name(path.name + ".new")
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
