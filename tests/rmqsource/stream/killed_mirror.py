# SPDX-License-Identifier: Apache-2.0
"""A process that starts mirrors and lets them die.

``python -m tests.rmqsource.stream.killed_mirror``
A run writes to the source itself: it finds both stores and the checkpoint as a kill left them.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

from tests.rmqsource.stream.growing_store import GrowingStore
from tests.rmqsource.stream.mirror_query import MirrorQuery
from tests.rmqsource.stream.simulated_query import Checkpoint
from tests.store_core.crash.by_hand import nothing_forced
from tests.store_core.crash.killed_writer import Death, serve

OPENING, GROWING, LOOKING = "source opened", "source grows", "new data looked for"
"""Work of a run besides the steps of its batches."""
CALLS = "calls"
MOST_PER_BATCH, ROUNDS, REOPENED = 8, 6, 0.2
_MOST_MESSAGES = 1000


class CheckpointFiles(Checkpoint):
    """A checkpoint on disk: a file for each batch in either log, created under another name."""

    def __init__(self, root: Path) -> None:
        self._offsets, self._commits = root / "offsets", root / "commits"
        for log in (self._offsets, self._commits):
            log.mkdir(parents=True, exist_ok=True)
        texts = [(self._offsets / name).read_text("utf-8") for name in _logged(self._offsets)]
        super().__init__(texts, len(_logged(self._commits)))

    def log_offsets(self, text: str) -> None:
        """Record the end of the next batch, before it runs."""
        _log(self._offsets / str(len(self.offsets)), text)
        super().log_offsets(text)

    def log_commit(self, number: int) -> None:
        """Record that a batch is done."""
        _log(self._commits / str(number), "{}")
        super().log_commit(number)


def _logged(log: Path) -> list[str]:
    """Return the names of files, in the order of the batches; there are no gaps."""
    names = sorted((path.name for path in log.iterdir() if path.name.isdecimal()), key=int)
    assert names == [str(number) for number in range(len(names))]
    return names


def _log(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, "utf-8")
    os.replace(temporary, path)  # noqa: PTH105 (a call that a kill can hit)


class Journal:
    """Records each step of a run in a file, which survives a kill; may kill this process there.

    Parameters
    ----------
    path
        Of the file.
    die_at, die_after
        Die when a step with this name is reached for the n-th time; not at all if empty.
    """

    def __init__(self, path: Path, die_at: str, die_after: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._die_at, self._left = die_at, die_after

    def note(self, step: str) -> None:
        """Record a step that begins, or that a batch has completed."""
        os.write(self._file, f"{step}\n".encode())
        if step == self._die_at:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def note_of_batch(self, _: int, step: str) -> bool:
        """Record a step of a batch; return that the query goes on."""
        self.note(step)
        return False


def mirror(root: str, run: int, die_at: str, die_after: int) -> None:
    """Let the source grow and mirror it, batch after batch; at the end mirror the rest.

    Parameters
    ----------
    root
        Where the stores ``a`` and ``b``, the checkpoint and the journal of steps are.
    run
        Number of this run.
    die_at, die_after
        Die when a step is reached for the n-th time, or at the n-th of all ``CALLS`` that change
        or open files; not at all if empty.
    """
    generator, place = random.Random(run), Path(root)
    journal = Journal(place / "journal", die_at, die_after)
    with nothing_forced():  # a killed process loses nothing that it wrote
        if die_at == CALLS:
            Death(die_after, generator).install()
        journal.note(OPENING)
        with GrowingStore(place / "a", first_number=run * _MOST_MESSAGES) as store:
            query = MirrorQuery(
                CheckpointFiles(place / "checkpoint"),
                store.root,
                place / "b",
                journal.note_of_batch,
                maxOffsetsPerTrigger=MOST_PER_BATCH,
                minPartitions=2,
            )
            for _ in range(ROUNDS):
                journal.note(GROWING)
                store.put(generator.randrange(12), size=generator.choice([20, 300]))
                if generator.random() < REOPENED:
                    store.reopen()
                journal.note(LOOKING)
                query.run_once()
            query.all_available()
    os._exit(0)


if __name__ == "__main__":
    serve(mirror)
