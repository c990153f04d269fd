"""What the directories and files of a store are called, below its root.

Source: RocketMQ ``StorePathConfigHelper``, ``BrokerPathConfigHelper``, ``TimerMessageStore``,
``CompactionStore`` (release 5.3.3).
"""

from __future__ import annotations

COMMIT_LOG_DIR = "commitlog"  # where storePathCommitLog names no other
CONSUME_QUEUE_DIR = "consumequeue"
CONSUME_QUEUE_EXT_DIR = "consumequeue_ext"
BATCH_CONSUME_QUEUE_DIR = "batchconsumequeue"
INDEX_DIR = "index"
CONFIG_DIR = "config"
TIMER_LOG_DIR = "timerlog"
TIMER_WHEEL_FILE = "timerwheel"
TIMER_CHECKPOINT_FILE = "timercheck"  # below CONFIG_DIR
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
