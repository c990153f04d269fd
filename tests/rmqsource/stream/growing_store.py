# SPDX-License-Identifier: Apache-2.0
"""A store of this project that a test writes, dispatches, flushes, cuts and expires by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from store_core import Message, MessageStore, MessageStoreConfig, PutMessageStatus
from tests.store_core.crash.by_hand import dispatch_all, without_threads

SEGMENT_BYTES = 4096


class GrowingStore:
    """A store without threads: only the test changes it.

    Parameters
    ----------
    root
        The store root.
    clock
        Clock for store times in ms; the real one if None.
    first_number
        Number of the first message to put: keys stay unique when a store is opened again.
    """

    def __init__(
        self,
        root: Path,
        segment_bytes: int = SEGMENT_BYTES,
        clock: Callable[[], int] | None = None,
        first_number: int = 0,
    ) -> None:
        self.root, self._clock, self._first_number = root, clock, first_number
        self._config = MessageStoreConfig(
            store_path_root_dir=str(root), mapped_file_size_commit_log=segment_bytes
        )
        self.put_bodies: list[bytes] = []
        self.open()

    def open(self) -> None:
        """Open the store, as a starting broker does."""
        more = {} if self._clock is None else {"clock": self._clock}
        self.store = MessageStore(self._config, **more)
        self.store.load()
        with without_threads():
            self.store.start()

    def put(self, count: int, *, dispatch: bool = True, topics: int = 2, size: int = 20) -> None:
        """Append messages to two queues of each of some topics."""
        for _ in range(count):
            number = self._first_number + len(self.put_bodies)
            body = f"message {number} ".encode().ljust(size, b".")
            message = Message(
                topic=f"Topic{number % topics}",
                queue_id=number // topics % 2,
                body=body,
                tags=f"tag{number % 3}",
                keys=[f"key{number}"],
                unique_key=f"{number:032X}",
            )
            result = self.store.put_message(message)
            assert result.status is PutMessageStatus.PUT_OK, result
            self.put_bodies.append(body)
        if dispatch:
            self.dispatch()

    def dispatch(self) -> None:
        """Dispatch the whole log to the queues."""
        dispatch_all(self.store)

    def flush(self) -> None:
        """Force the log to the disk, and update the checkpoint."""
        services = self.store.services
        services.flush.flush_service.finish()
        services.checkpoint.finish()

    def close(self) -> None:
        """Stop it cleanly."""
        self.store.shutdown()

    def reopen(self) -> None:
        """Stop it cleanly, and start it again."""
        self.close()
        self.open()

    def expire(self, segments: int) -> None:
        """Delete the oldest segments, as a broker does when they expire."""
        for path in self.segments()[:segments]:
            path.unlink()

    def segments(self) -> list[Path]:
        """Return the files of the log, oldest first."""
        return sorted((self.root / "commitlog").iterdir())

    def make_anew(self) -> None:
        """Delete the store, and begin another one at the same place."""
        self.close()
        shutil.rmtree(self.root)
        self.open()

    def __enter__(self) -> GrowingStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def bodies(rows: list[dict[str, object]]) -> list[object]:
    """Return the bodies of rows, in order."""
    return [row["body"] for row in rows]
