"""What the directories and files of a store are called, below its root.

Source: RocketMQ ``StorePathConfigHelper``, ``BrokerPathConfigHelper``, ``TimerMessageStore``,
``CompactionStore`` (release 5.3.3), ``MessageRocksDBStorage`` (5.5.1).
"""

from __future__ import annotations

import re

COMMIT_LOG_DIR = "commitlog"  # where storePathCommitLog names no other
CONSUME_QUEUE_DIR = "consumequeue"
CONSUME_QUEUE_EXT_DIR = "consumequeue_ext"
ROCKSDB_CONSUME_QUEUE_DIR = "consumequeue_rocksdb"  # with useSeparateStorePathForRocksdbCQ
ROCKSDB_STORE_DIR = "rocksdbstore"  # 5.4.0 on: index, timers and transactions in a database
BATCH_CONSUME_QUEUE_DIR = "batchconsumequeue"
INDEX_DIR = "index"
CONFIG_DIR = "config"
TIMER_LOG_DIR = "timerlog"
TIMER_WHEEL_FILE = "timerwheel"
TIMER_CHECKPOINT_FILE = "timercheck"  # below CONFIG_DIR
_WHEEL_SNAPSHOT = re.compile(TIMER_WHEEL_FILE + r"\.([0-9]{1,19})")
COMPACTION_DIR = "compaction"
COMPACTION_LOG_DIR = "compactionLog"  # below COMPACTION_DIR, as the next
COMPACTION_QUEUE_DIR = "compactionCq"

CHECKPOINT_FILE = "checkpoint"
LOCK_FILE = "lock"
ABORT_FILE = "abort"
ABORT_BACKUP_FILE = "abort.bak"

QUEUE_DIRS = (
    CONSUME_QUEUE_DIR,
    CONSUME_QUEUE_EXT_DIR,
    BATCH_CONSUME_QUEUE_DIR,
)


def wheel_snapshot(name: str) -> int | None:
    """Return up to where in the timer log a snapshot of the wheel goes; None if it is none.

    Brokers with ``timerWheelSnapshotFlush=true`` write ``timerwheel.N`` instead of the wheel.
    """
    found = _WHEEL_SNAPSHOT.fullmatch(name)
    return int(found[1]) if found else None
