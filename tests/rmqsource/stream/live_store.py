# SPDX-License-Identifier: Apache-2.0
"""A store that another process writes while a stream follows it, and the expected result.

The process obeys standard input (`put N`, `expire OFFSET`), and keeps a journal: a line
``put TOPIC QUEUE MD5`` before each message, and a line ``ok N`` when the N oldest unconfirmed
messages are stored.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from hashlib import md5
from pathlib import Path
from typing import Any, NamedTuple

from tests.rmqsource.stream.simulated_query import (
    STEPS,
    Checkpoint,
    KilledError,
    SimulatedQuery,
    where,
)

COLUMNS = ("topic", "queue_id", "queue_offset", "commit_log_offset", "body")
SIZES = {
    "mappedFileSizeCommitLog": 64 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 100,
    "deleteCommitLogFilesInterval": 1,
    "deleteConsumeQueueFilesInterval": 1,
    "fileReservedTime": 72,
}
"""Small files, so that they roll; old ones expire when the test says they are old."""

_ROOT = Path(__file__).parents[3]
_WAIT_SECONDS = 60
_KILLS_PER_STEP = 0.03


class Put(NamedTuple):
    """A message that was put."""

    topic: str
    queue_id: int
    md5: str


class Feeder:
    """A process that puts and deletes while the test goes on.

    Parameters
    ----------
    command
        Starts it.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT, text=True
        )
        self.waiting = 1
        self._answered = threading.Condition()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                with self._answered:
                    self.waiting -= 1
                    self._answered.notify_all()
        with self._answered:
            self._process.stdout.close()
            self.waiting = 0  # it has ended or died; `stop` reports that
            self._answered.notify_all()

    def tell(self, command: str) -> None:
        """Send the next command."""
        assert self._process.stdin is not None
        assert self._process.poll() is None, "it died"
        with self._answered:
            self.waiting += 1
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        """Wait until all commands are done."""
        with self._answered:
            assert self._answered.wait_for(lambda: self.waiting == 0, _WAIT_SECONDS), "it hangs"

    def stop(self) -> None:
        """End it; it stops its store cleanly."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(_WAIT_SECONDS) == 0
        self._listener.join()

    def kill(self) -> None:
        """Kill it with a signal, wherever it is."""
        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait()
        self._listener.join()
        self._process.stdin.close()


class Proof:
    """Compares the stream's output with the journal of the writing process.

    Parameters
    ----------
    journal
        Path of the journal.
    """

    def __init__(self, journal: Path) -> None:
        self._journal, self._read_bytes = journal, 0
        self._unknown: deque[Put] = deque()
        self._stored: deque[tuple[Put, bool]] = deque()
        self._delivered: deque[Put] = deque()
        self._next_offsets: dict[tuple[str, int], int] = defaultdict(int)
        self._last_place = -1
        self.messages = 0

    def deliver(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add rows of a batch; check that each queue has no gap, and the log's order is right."""
        for row in rows:
            queue = (row["topic"], row["queue_id"])
            assert row["queue_offset"] == self._next_offsets[queue], (queue, row["queue_offset"])
            self._next_offsets[queue] += 1
            assert row["commit_log_offset"] > self._last_place
            self._last_place = row["commit_log_offset"]
            self._delivered.append(Put(*queue, md5(row["body"]).hexdigest()))

    def compare(self) -> None:
        """Compare all that is known of both sides: the same messages, in the same order."""
        self._read_journal()
        while self._delivered and self._stored:
            put, is_sure = self._stored.popleft()
            if put == self._delivered[0]:
                self._delivered.popleft()
                self.messages += 1
            else:
                assert not is_sure, f"not delivered: {put}; instead {self._delivered[0]}"

    def process_ended(self) -> None:
        """Messages the journal does not acknowledge may be stored or not."""
        self._read_journal()
        self._stored.extend((put, False) for put in self._unknown)
        self._unknown.clear()

    def finish(self) -> None:
        """Check that nothing is missing, and nothing is left over."""
        self.compare()
        assert not self._delivered, f"delivered, but never put: {self._delivered[0]}"
        missing = [put for put, is_sure in self._stored if is_sure]
        assert not missing, f"{len(missing)} not delivered, such as {missing[0]}"

    def _read_journal(self) -> None:
        with self._journal.open("rb") as file:
            file.seek(self._read_bytes)
            data = file.read()
        lines, end, _ = data.rpartition(b"\n")
        self._read_bytes += len(lines) + len(end)
        for line in lines.splitlines():
            word, *values = line.decode().split()
            if word == "put":
                topic, queue_id, digest = values
                self._unknown.append(Put(topic, int(queue_id), digest))
            else:
                self._stored.extend((self._unknown.popleft(), True) for _ in range(int(values[0])))


class Followed(NamedTuple):
    """Result of following a store."""

    messages: int
    batches: int
    kills: int
    segments: int
    expired: int


class LiveFollow:
    """Follows a store in tiny batches, with kills of the query, while processes write it.

    Parameters
    ----------
    root
        The store.
    journal
        Journal of the processes.
    seed
        Seed of batches and kills.
    options
        Options of the stream.
    """

    def __init__(self, root: Path, journal: Path, seed: int, **options: Any) -> None:
        self._root, self._generator = root, random.Random(seed)
        self._options = {**where(root), **options}
        self._checkpoint, self._proof = Checkpoint(), Proof(journal)
        self._kills = 0
        self._query: SimulatedQuery | None = None

    def _started(self) -> SimulatedQuery:
        return SimulatedQuery(self._checkpoint, self._options, COLUMNS, self._is_killed)

    def _is_killed(self, number: int, step: str) -> bool:
        del number
        return step in STEPS and self._generator.random() < _KILLS_PER_STEP

    def during(self, feeder: Feeder, messages: int) -> None:
        """Let the process put so many messages without a pause, and follow it."""
        left = messages
        while left or feeder.waiting:
            if left and feeder.waiting < 3:
                count = min(left, self._generator.choice([1, 5, 20, 100, 300]))
                left -= count
                feeder.tell(f"put {count}")
                feeder.tell(f"expire {self._reached()}")
            self._run_once()

    def stop(self, feeder: Feeder, *, kill: bool) -> None:
        """End the process, and follow the rest."""
        if kill:
            feeder.tell("put 1000000")
            self._run_once()
            feeder.kill()
        else:
            feeder.stop()
        self._proof.process_ended()
        while self._run_once():
            pass

    def finish(self) -> Followed:
        """Compare everything; return figures."""
        while self._run_once():
            pass
        self._take(all_batches=True)
        self._proof.finish()
        names = [int(path.name) for path in (self._root / "commitlog").iterdir()]
        expired = min(names) // SIZES["mappedFileSizeCommitLog"]
        return Followed(
            self._proof.messages,
            len(self._checkpoint.offsets),
            self._kills,
            expired + len(names),
            expired,
        )

    def _run_once(self) -> bool:
        self._query = self._query or self._started()
        try:
            has_run = self._query.run_once()
        except KilledError:
            self._kills, self._query = self._kills + 1, None
            return True
        self._take(all_batches=False)
        return has_run

    def _take(self, *, all_batches: bool) -> None:
        """Compare the sink's rows, except the newest batch: it may be repeated."""
        sink = self._checkpoint.sink
        for number in sorted(sink)[: None if all_batches else -1]:
            self._proof.deliver(sink.pop(number))
        self._proof.compare()

    def _reached(self) -> int:
        if not self._checkpoint.commits:
            return 0
        offset = json.loads(self._checkpoint.offsets[self._checkpoint.commits - 1])
        (store,) = offset["stores"].values()
        return int(store["offset"])


def python_feeder(root: Path, journal: Path, seed: int) -> Feeder:
    """Return a process that writes with this project's own store."""
    module = "tests.rmqsource.stream.feeding_process"
    return Feeder([sys.executable, "-m", module, str(root), str(journal), str(seed)])
