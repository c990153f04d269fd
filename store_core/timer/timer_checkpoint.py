"""How far the timer has come, as ``config/timercheck`` has it.

Source: RocketMQ ``TimerCheckpoint``, ``TimerMessageStore.prepareTimerCheckPoint``, ``DataVersion``
(release 5.3.3).
"""

from __future__ import annotations

from store_core.files.rewritten_file import RewrittenFile
from store_core.layout.timer import TIMER_CHECKPOINT, TIMER_CHECKPOINT_FILE_BYTES
from store_core.read.timer_state import TimerProgress, timer_progress


class TimerCheckpoint:
    """The file, and what it says.

    Parameters
    ----------
    path
        The file; made with the first `save`.

    Attributes
    ----------
    progress
        What it says; all 0 without a file.
    """

    def __init__(self, path: str) -> None:
        self.progress = TimerProgress()
        self._file = RewrittenFile(path)
        self._state_version = self._timestamp = self._counter = 0

    def load(self) -> None:
        """Read the file; what a short one does not hold is 0.

        Raises
        ------
        StoreReadError
            It cannot be read.
        """
        data = self._file.read(TIMER_CHECKPOINT.size)
        row = TIMER_CHECKPOINT.unpack(data.ljust(TIMER_CHECKPOINT.size, b"\0"))
        self.progress = timer_progress(data)
        self._state_version, self._timestamp = row.state_version, row.timestamp
        self._counter = row.counter

    def save(self, progress: TimerProgress, now: int) -> None:
        """Write what is new and force it to the disk.

        The data version counts where more was read or enqueued, as a broker's does.

        Raises
        ------
        StoreWriteError
            It cannot be written.
        """
        if progress._replace(log_pos=self.progress.log_pos) != self.progress:
            self._timestamp, self._counter = now, self._counter + 1
        data = TIMER_CHECKPOINT.pack(
            last_read_time_ms=progress.read_ms,
            last_timer_log_flush_pos=progress.log_pos,
            last_timer_queue_offset=progress.queue_offset,
            master_timer_queue_offset=progress.queue_offset,
            state_version=self._state_version,
            timestamp=self._timestamp,
            counter=self._counter,
        )
        self._file.write(data.ljust(TIMER_CHECKPOINT_FILE_BYTES, b"\0"))
        self.progress = progress

    def close(self) -> None:
        """Close the file."""
        self._file.close()
