# SPDX-License-Identifier: Apache-2.0
"""Delete the oldest segments of the commit log by age, and when the disk gets full.

Source: RocketMQ ``DefaultMessageStore.CleanCommitLogService`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Callable, Protocol

from store_core.services.environment import disk_ratio as used_share
from store_core.services.environment import is_gone, local_hour
from store_core.services.service_thread import ServiceThread
from store_core.state.running_flags import RunningFlag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.state.running_flags import RunningFlags

logger = logging.getLogger(__name__)
FIRST_CLEAN_DELAY_MS = 60_000
_MANUAL_RUNS = 20
_WARNING_BOUNDS = (0.35, 0.90)
_FORCED_BOUNDS = (0.30, 0.85)
_MOST_USED_BOUNDS = (0.10, 0.95)
_HOUR_MS = 3_600_000


class CleanCommitLogService(ServiceThread):
    """Deletes segments in the hours of ``deleteWhen``, to free space, or on request.

    It deletes segments that were not changed for ``fileReservedTime``; above the forced level, all
    except the last. Above the warning level puts are refused as well, until usage is no longer
    above the forced level. Records stay until they are dispatched and on the disk in the queues'
    files: RocketMQ deletes them when the disk gets full, and they never get into a queue.

    A segment that is being read is deleted after ``destroyMapedFileIntervalForcibly`` at the
    latest, and those after it wait as long; it is checked every ``redeleteHangedFileInterval``, at
    any hour.

    A directory that has disappeared does not count as full: nothing is deleted for it, and no new
    segment recreates it. Puts are refused while the log has no directory left, or the directory of
    the queues is gone. ``replicasPerDiskPartition`` is not supported.

    Parameters
    ----------
    disk_ratio
        Returns the used share (0 to 1) of the disk below a directory; -1 if unknown.
    """

    def __init__(
        self,
        log: MappedFileQueue,
        config: MessageStoreConfig,
        flags: RunningFlags,
        clock: Callable[[], int],
        *,
        queue_directory: str,
        dispatched_offset: Callable[[], int],
        disk_ratio: Callable[[str], float] = used_share,
        hour: Callable[[int], int] = local_hour,
    ) -> None:
        super().__init__(config.clean_resource_interval, first_delay_ms=FIRST_CLEAN_DELAY_MS)
        self._log, self._config, self._flags, self._clock = log, config, flags, clock
        self._queue_directory, self._disk_ratio, self._hour = queue_directory, disk_ratio, hour
        self._dispatched_offset = dispatched_offset
        self._warning = _clamp(config.disk_space_warning_level_ratio / 100, _WARNING_BOUNDS)
        self._forced = _clamp(config.disk_space_clean_forcibly_ratio / 100, _FORCED_BOUNDS)
        self._manual_runs = 0
        self._gone: frozenset[str] = frozenset()
        flags.gone = ""
        self._looked_at = clock()  # for a segment that waits

    def execute_delete_files_manually(self) -> None:
        """Delete expired segments in the next 20 runs, at any hour."""
        self._manual_runs = _MANUAL_RUNS

    def run_once(self) -> bool:
        """Delete the segments that may go now; return whether any was deleted."""
        now = self._clock()
        for_space, immediately = self._look_at_space()  # first: deleting a file may fail
        if abs(now - self._looked_at) >= self._config.redelete_hanged_file_interval:
            self._looked_at = now
            self._log.delete_hung_file(now, self._config.destroy_maped_file_interval_forcibly)
        if not (self._hour(now) in self._config.delete_hours or for_space or self._manual_runs):
            return False
        self._manual_runs = max(self._manual_runs - 1, 0)
        deleted = self._delete(now, immediately and self._config.clean_file_forcibly_enable)
        if for_space and not deleted:
            logger.warning(
                "the disk is filling up, and no segment of the commit log can be deleted"
            )
        return deleted > 0

    def _delete(self, now: int, immediately: bool) -> int:
        """Delete segments one by one; a pause after each leaves the disk to others."""
        reserved_ms = self._config.file_reserved_time * _HOUR_MS
        deleted = 0
        while deleted < self._config.delete_file_batch_max and self._log.delete_expired_files(
            now,
            reserved_ms,
            immediately=immediately,
            batch_max=1,
            patience_ms=self._config.destroy_maped_file_interval_forcibly,
            below=self._dispatched_offset(),
        ):
            deleted += 1
            self.pause(self._config.delete_commit_log_files_interval)
        return deleted

    def _look_at_space(self) -> tuple[bool, bool]:
        """Set flags and full directories; return whether to free space, and at any age."""
        ratios = {path: self._disk_ratio(path) for path in self._log.directories}
        queue_ratio = self._disk_ratio(self._queue_directory)
        gone = self._look_for_directories({**ratios, self._queue_directory: queue_ratio})
        self._log.full_directories = frozenset(
            path for path, ratio in ratios.items() if ratio > self._forced or path in gone
        )
        if self._flags.gone:
            return False, False
        log_ratio = min(ratio for path, ratio in ratios.items() if path not in gone)
        if self._check_level(log_ratio, RunningFlag.DISK_FULL):
            return True, True
        if self._check_level(queue_ratio, RunningFlag.LOGIC_DISK_FULL):
            return True, True
        most = _clamp(self._config.disk_max_used_space_ratio / 100, _MOST_USED_BOUNDS)
        return not (0 <= log_ratio <= most and 0 <= queue_ratio <= most), False

    def _look_for_directories(self, ratios: dict[str, float]) -> frozenset[str]:
        """Return the directories that are gone, log each once, and set whether puts are refused."""
        gone = frozenset(p for p, r in ratios.items() if r < 0 and is_gone(p))
        for path in sorted(gone - self._gone):
            logger.error("%s", self._gone_text(path))
        for path in sorted(self._gone - gone):
            logger.info("%s exists again", path)
        self._gone = gone
        needed = [self._queue_directory]
        if gone.issuperset(self._log.directories):
            needed = [*self._log.directories, *needed]
        self._flags.gone = next((self._gone_text(p) for p in needed if p in gone), "")
        return gone

    def _gone_text(self, path: str) -> str:
        is_log = path in self._log.directories
        what = "storePathCommitLog" if is_log else "the directory of the queues"
        return f"{what} {path} no longer exists: restore it (is its disk mounted?)"

    def _check_level(self, ratio: float, flag: RunningFlag) -> bool:
        """Return whether a disk is above the forced level; two levels keep the flag steady."""
        if ratio > self._warning:
            if self._flags.set(flag):
                logger.error(
                    "%s: %.0f %% of the disk is used; puts are refused", flag.name, ratio * 100
                )
            return True
        if ratio > self._forced:
            return True
        if self._flags.clear(flag):
            logger.info("%s is over: %.0f %% of the disk is used", flag.name, ratio * 100)
        return False


def _clamp(ratio: float, bounds: tuple[float, float]) -> float:
    return min(max(ratio, bounds[0]), bounds[1])


# Source: RocketMQ ``ConsumeQueueStore.CleanConsumeQueueService``, ``CorrectLogicOffsetService``
# (release 5.3.3).
class ExpiringIndex(Protocol):
    """An index whose expired files can be deleted."""

    def delete_expired(self, min_phy_offset: int, /) -> object:
        """Delete files without entries at or after this offset of the log."""


class ExpiringQueues(Protocol):
    """Queues whose expired files can be deleted."""

    def queues(self) -> Sequence[tuple[str, int]]:
        """Return (topic, queue id) of all."""

    def delete_expired_of(self, key: tuple[str, int], min_phy_offset: int, /) -> int:
        """Delete the expired files of one queue; return how many."""


class Correctable(Protocol):
    """Queues whose least offsets can be corrected."""

    def correct_min_offsets(self, min_phy_offset: int, /) -> object:
        """Set the start of each queue to its first unit that points into the log."""


class CleanConsumeQueueService(ServiceThread):
    """Deletes expired files of queues and index when the log's least offset has grown.

    After each queue that lost files it pauses for ``deleteConsumeQueueFilesInterval``, to leave the
    disk to others.
    """

    def __init__(
        self,
        log: MappedFileQueue,
        queues: ExpiringQueues,
        index: ExpiringIndex,
        config: MessageStoreConfig,
    ) -> None:
        super().__init__(config.clean_resource_interval, first_delay_ms=FIRST_CLEAN_DELAY_MS)
        self._log, self._queues, self._index = log, queues, index
        self._interval_between_queues_ms = config.delete_consume_queue_files_interval
        self._done_offset = 0

    def run_once(self) -> bool:
        """Delete expired files; return whether the least offset had grown."""
        min_offset = self._log.min_offset
        if min_offset <= self._done_offset:
            return False
        for key in self._queues.queues():
            if self._queues.delete_expired_of(key, min_offset):
                self.pause(self._interval_between_queues_ms)
        self._index.delete_expired(min_offset)
        self._done_offset = min_offset
        return True


class CorrectLogicOffsetService(ServiceThread):
    """Corrects the queues' least offsets when the log's changes, and at a fixed interval."""

    def __init__(
        self,
        log: MappedFileQueue,
        queues: Correctable,
        config: MessageStoreConfig,
        clock: Callable[[], int],
    ) -> None:
        super().__init__(config.clean_resource_interval, first_delay_ms=FIRST_CLEAN_DELAY_MS)
        self._log, self._queues, self._clock = log, queues, clock
        self._force_interval_ms = config.correct_logic_min_offset_force_interval
        self._done_offset, self._done_at = 0, clock()

    def run_once(self) -> bool:
        """Correct the queues if due; return whether they were."""
        min_offset, now = self._log.min_offset, self._clock()
        is_time = abs(now - self._done_at) >= self._force_interval_ms
        if min_offset < 0 or (min_offset == self._done_offset and not is_time):
            return False
        self._queues.correct_min_offsets(min_offset)
        self._done_offset, self._done_at = min_offset, now
        return True
