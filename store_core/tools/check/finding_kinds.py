# SPDX-License-Identifier: Apache-2.0
"""Kinds of findings: how bad each is, what it means for a user, and what to do about it."""

from __future__ import annotations

from enum import Enum


class Severity(Enum):
    """How bad a finding is."""

    DAMAGE = "damage"
    """Messages are lost or wrong, or a part of the log cannot be read."""
    REPAIRABLE = "repairable"
    """The log is intact, but files derived from it or beside it are not. A broker may not start."""
    NOT_CHECKED = "not checked"
    """A part could not be checked, or it is unknown whether something is missing."""
    INFORMATION = "information"
    """Worth knowing; nothing is wrong."""


_INDEX_FIX = "rocketmq-store rebuild-index rebuilds the index from the log"
QUEUE_FIX = "rocketmq-store rebuild-queues rebuilds the queues from the log"
_LOG_FIX = "read the intact messages with mode=PERMISSIVE; copy them before you start a broker"
_START_FIX = "move the file out of the store before you start a broker"
_COMPACTED_FIX = (
    "read the intact messages with access=compaction and mode=PERMISSIVE; restore "
    "compaction/ from a copy: a broker does not rebuild it"
)
_TIMER_FIX = (
    "move config/timercheck away while no broker runs: the next broker treats all timer "
    "messages of the log as new, so it also delivers those that were already delivered or "
    "cancelled"
)
_ENTRY_INDEX_FIX = (
    "move dledger-*/index away while no broker runs: DLedger rebuilds it from its data at "
    "the next start"
)
RECOVER = "rocketmq-store recover does so now"
_NONE = "nothing to do"


class FindingKind(Enum):
    """Kinds of findings, each with its severity, its meaning, and what to do about it."""

    LOG_GAP = (
        Severity.DAMAGE,
        "no record can be read here, so its messages are lost; a recovery by RocketMQ that "
        "reaches this point cuts off everything after it",
        _LOG_FIX,
    )
    ENTRY_HEADER = (
        Severity.DAMAGE,
        "the header of a DLedger entry is not what was stored; its message is intact, but a "
        "recovery by DLedger that reaches it cuts off everything after it",
        _LOG_FIX,
    )
    ENTRY_INDEX = (
        Severity.REPAIRABLE,
        "the index of the DLedger log does not lead to these entries: their messages are "
        "intact, but this node cannot send them to another node that lacks them",
        _ENTRY_INDEX_FIX,
    )
    ENTRY_INDEX_LATE = (
        Severity.INFORMATION,
        "the index of the DLedger log does not lead to these entries of its last three "
        "files: DLedger rewrites their units at its next start",
        _NONE,
    )
    LOG_TAIL = (
        Severity.DAMAGE,
        "bytes after the last readable record are not a record, as after a crash in the "
        "middle of a write",
        "the next recovery cuts them off",
    )
    LOG_MISSING = (
        Severity.DAMAGE,
        "the log has no file, but the store held messages",
        "check that its disk is mounted and storePathCommitLog is right; if so, restore the "
        "log from a copy or a replica",
    )
    LOG_UNKNOWN = (
        Severity.NOT_CHECKED,
        "the log has no file, and nothing shows that a broker made this store",
        "check that its disk is mounted, and that the path and storePathCommitLog are right",
    )
    NO_RECORD = (
        Severity.DAMAGE,
        "the files of the log are not empty, but no record can be read in them",
        "check whether these are files of a commit log; restore them from a copy or a replica",
    )
    LOG_END_LOST = (
        Severity.DAMAGE,
        "the log ends too early: other files of the store name later messages, which are lost",
        "check that all disks of the log are mounted, or restore its last files from a copy "
        "or a replica; otherwise rocketmq-store recover --cut gives up these messages",
    )
    SEGMENT_MISSING = (
        Severity.DAMAGE,
        "files in the middle of the log are missing; their messages are lost",
        "restore the files from a copy or a replica",
    )
    BODY_CRC = (
        Severity.DAMAGE,
        "the body is not what was stored; a recovery by RocketMQ that reaches this point "
        "cuts the log",
        _LOG_FIX,
    )
    BODY_FLAGS = (
        Severity.DAMAGE,
        "the body is what was stored, but not what the record's flags say it is (compressed, a "
        "batch): no consumer can decode it",
        "body=raw reads a body that is not compressed, mode=PERMISSIVE skips a body that is "
        "not a batch; a broker serves both, and its consumers fail",
    )
    PROPERTY_CRC = (
        Severity.DAMAGE,
        "the record is not what was stored (its own CRC over all bytes); topic, properties or "
        "header may be wrong",
        _LOG_FIX,
    )
    STORE_TIME = (
        Severity.DAMAGE,
        "records whose store time is far from those before and after: it is not what was "
        "stored, and reads of a time window may miss them",
        _LOG_FIX,
    )
    QUEUE_OFFSET = (
        Severity.DAMAGE,
        "records whose queue offset does not fit between those before and after them in the "
        "queue: it is not what was stored. They are read at their place; a client that gets "
        "one may commit a wrong offset",
        "rocketmq-store salvage gives them the right queue offsets in a new store",
    )
    NOT_QUEUED = (
        Severity.DAMAGE,
        "records whose flags say that they are prepared or rolled back in a transaction, but "
        "which have a queue offset, which brokers never give to such records: one of the two "
        "is not what was stored. Neither a rebuilt queue nor consumers get them",
        "read them with access=commitlog",
    )
    SEGMENT_SIZE = (
        Severity.DAMAGE,
        "a file of the log does not have the size of a segment: a broker does not start",
        "restore the file from a copy",
    )
    UNREADABLE = (
        Severity.DAMAGE,
        "the file cannot be read",
        "check the disk",
    )
    NO_PERMISSION = (
        Severity.NOT_CHECKED,
        "this user may not read the file: it and what depends on it were not checked",
        "check again as a user who may read it",
    )
    STALE_BYTES = (
        Severity.INFORMATION,
        "bytes after the end of the log, left by an old cut or a crash; they are not data",
        _NONE,
    )
    ODD_BLANK = (
        Severity.INFORMATION,
        "the blank record that closes the segment has a length other than that of the rest "
        "of the segment; no one reads it",
        _NONE,
    )
    STRANGE_FILE = (
        Severity.REPAIRABLE,
        "RocketMQ treats every file here as a segment and cannot parse this name: a broker "
        "does not start",
        _START_FIX,
    )
    QUEUE_FILE_SIZE = (
        Severity.REPAIRABLE,
        "a queue file differs in size from its neighbours: a broker does not start",
        QUEUE_FIX,
    )
    QUEUE_UNREADABLE = (
        Severity.REPAIRABLE,
        "files of the queue are missing or cut, or contradict each other",
        QUEUE_FIX,
    )
    QUEUE_TYPE = (
        Severity.REPAIRABLE,
        "topics.json and the directory disagree on the kind of queue: a broker does not start",
        "correct queue.type in topics.json",
    )
    RECORD_WITHOUT_UNIT = (
        Severity.REPAIRABLE,
        "records that are in no queue: consumers never get them",
        QUEUE_FIX,
    )
    QUEUE_IMPOSSIBLE = (
        Severity.DAMAGE,
        "records of a queue that cannot exist: its number is negative, or its topic is not a "
        "valid directory name. They are in no queue",
        "read them with access=commitlog",
    )
    QUEUE_MISSING = (
        Severity.REPAIRABLE,
        "records of a queue that has no files",
        QUEUE_FIX,
    )
    NOT_DISPATCHED = (
        Severity.INFORMATION,
        "the newest records are in no queue yet: the broker, or the recovery at its next "
        "start, will put them there",
        _NONE,
    )
    EARLIER_LIFE = (
        Severity.INFORMATION,
        "records of a topic that was deleted, and perhaps created again, or of a queue that was "
        "lost before it began at 0 again: they are in the log, not in the queue",
        _NONE,
    )
    QUEUE_RESTARTED = (
        Severity.DAMAGE,
        "the queue lost its files and began at offset 0 again with the next message: "
        "consumers never get the earlier records",
        "copy these messages to a new store (rocketmq-store salvage)",
    )
    UNIT_EMPTY = (
        Severity.REPAIRABLE,
        "empty units between others: RocketMQ treats such a place as the end of the queue",
        QUEUE_FIX,
    )
    UNIT_WRONG = (
        Severity.REPAIRABLE,
        "units that do not point at a record of their queue and size: consumers get nothing "
        "or garbage there",
        QUEUE_FIX,
    )
    UNIT_MOVED = (
        Severity.REPAIRABLE,
        "units that are not at the queue offset of their record",
        QUEUE_FIX,
    )
    UNIT_DISOWNED = (
        Severity.DAMAGE,
        "units whose records have the right size and queue offset, but name another queue or "
        "a transaction that is not committed: these fields of the records were damaged. "
        "Consumers get them",
        "keep the queue: the records cannot be repaired, and a rebuilt queue does not have them",
    )
    UNIT_SHIFTED = (
        Severity.INFORMATION,
        "units at a lower queue offset than their records have: earlier records are lost, "
        "and the gap was closed when the queue was rebuilt",
        _NONE,
    )
    UNIT_TAGS = (
        Severity.REPAIRABLE,
        "units whose tags code is not their record's: filters by tag miss these messages",
        QUEUE_FIX,
    )
    UNIT_TIME = (
        Severity.INFORMATION,
        "delivery times that do not follow from messageDelayLevel: the broker's "
        "configuration was not given, or was changed since",
        _NONE,
    )
    UNIT_DELIVERY = (
        Severity.REPAIRABLE,
        "delivery times that no delay level can give: before their record was stored, or not "
        "a whole number of seconds after it. Such a message is delivered too early or too "
        "late",
        "rocketmq-store rebuild-queues with --config and the broker's configuration file, "
        "which determines delivery times",
    )
    EXT_UNIT = (
        Severity.REPAIRABLE,
        "extension units that are not those of their record: filters miss messages",
        QUEUE_FIX,
    )
    EXT_MISSING = (
        Severity.REPAIRABLE,
        "extension units that are missing: filters let such messages pass",
        QUEUE_FIX,
    )
    UNIT_BEHIND_END = (
        Severity.REPAIRABLE,
        "old units that point past the end of the log: after more messages RocketMQ may "
        "count them again",
        QUEUE_FIX,
    )
    UNIT_OF_LOST_RECORD = (
        Severity.INFORMATION,
        "units of records in damaged parts of the log: so many messages of the queue are lost",
        _NONE,
    )
    QUEUE_HOLE = (
        Severity.INFORMATION,
        "queue offsets of a batch queue that no unit covers, between units of intact "
        "records: the records in between are lost",
        _NONE,
    )
    QUEUE_ORDER = (
        Severity.REPAIRABLE,
        "units of a batch queue do not follow each other",
        QUEUE_FIX,
    )
    COMPACTED_FILES = (
        Severity.DAMAGE,
        "files of a compacted log and of its queue do not match, as after a crash while the "
        "broker replaced them: a broker may not start, and consumers may miss messages",
        _COMPACTED_FIX,
    )
    COMPACTED_UNIT = (
        Severity.DAMAGE,
        "units of a compacted log's queue that do not point at one of its records: consumers "
        "get nothing or garbage there",
        _COMPACTED_FIX,
    )
    COMPACTED_BODY = (
        Severity.DAMAGE,
        "bodies in a compacted log that are not what was stored",
        _COMPACTED_FIX,
    )
    COMPACTED_WITHOUT_UNIT = (
        Severity.DAMAGE,
        "records of a compacted log that its queue does not contain: consumers never get them",
        _COMPACTED_FIX,
    )
    COMPACTED_LOST = (
        Severity.DAMAGE,
        "messages that are the newest of their keys but are missing from the files of the "
        "compacted log: consumers get them at most until the broker restarts. RocketMQ 5.3.3 "
        "loses some when it begins a file while it replaces others; a message whose KEYS "
        "were damaged (no CRC covers them) is counted as one of these, unless the index "
        "shows otherwise",
        "the commit log has them until they expire: read them with access=consumequeue at "
        "these queue offsets, and send them again",
    )
    COMPACTED_ONLY = (
        Severity.INFORMATION,
        "messages that only a compacted log still has: in the commit log they have expired",
        "read them with access=compaction; a copy without compaction/ does not have them",
    )
    TIMER_FILES = (
        Severity.REPAIRABLE,
        "a file of the timer is not valid: a broker may not start, and the waiting messages "
        "are not known",
        "move timerwheel, timerlog and config/timercheck away while no broker runs: the next "
        "broker treats all timer messages of the log as new, and delivers past ones again",
    )
    TIMER_UNIT = (
        Severity.REPAIRABLE,
        "waiting units of the timer log that do not point at a record of the timer's topic: "
        "nothing, or the wrong message, is delivered at their time",
        _TIMER_FIX,
    )
    TIMER_SLOT = (
        Severity.REPAIRABLE,
        "slots of the timer wheel whose units are for another time, or are chained to such "
        "units: waiting messages are delivered at a wrong time, or never",
        _TIMER_FIX,
    )
    TIMER_LOST = (
        Severity.REPAIRABLE,
        "timer messages that are waiting according to the checkpoint but are not in the "
        "timer log: a broker never delivers them",
        _TIMER_FIX,
    )
    NOT_READ = (
        Severity.INFORMATION,
        "a part of the store that this package does not read, so it was not checked either",
        _NONE,
    )
    INDEX_UNUSABLE = (
        Severity.REPAIRABLE,
        "an index file whose length or header is impossible",
        _INDEX_FIX,
    )
    INDEX_HEADER = (
        Severity.REPAIRABLE,
        "the header of an index file does not match its entries or the log",
        _INDEX_FIX,
    )
    INDEX_CHAIN = (
        Severity.REPAIRABLE,
        "entries that no chain reaches, or chains that lead astray: messages are not found by key",
        _INDEX_FIX,
    )
    INDEX_ENTRY = (
        Severity.REPAIRABLE,
        "entries that do not point at a record with their key",
        _INDEX_FIX,
    )
    INDEX_TIME = (
        Severity.REPAIRABLE,
        "times in entries or header that differ from those of the records: queries with a "
        "time range miss messages",
        _INDEX_FIX,
    )
    INDEX_DOUBLE = (
        Severity.INFORMATION,
        "duplicate entries, as after a crash: RocketMQ returns the message twice",
        _NONE,
    )
    INDEX_BEHIND_END = (
        Severity.REPAIRABLE,
        "entries past the end of the log: messages written there next will not be indexed",
        _INDEX_FIX,
    )
    INDEX_OF_LOST_RECORD = (
        Severity.INFORMATION,
        "entries of records in the damaged parts of the log",
        _NONE,
    )
    INDEX_SIZES = (
        Severity.INFORMATION,
        "the index was not checked: its sizes are not known",
        "give maxHashSlotNum and maxIndexNum, or the broker's configuration file",
    )
    NOT_FOUND_BY_KEY = (
        Severity.REPAIRABLE,
        "records whose keys are not in the index (fine if messageIndexEnable=false): queries "
        "by key do not find them",
        _INDEX_FIX,
    )
    NOT_FOUND_BY_TAG = (
        Severity.INFORMATION,
        "records whose tags are not in the index, as brokers before 5.4.0 leave them: RocketMQ's "
        "query by tag does not find them",
        "rocketmq-store rebuild-index indexes them, if you need that query",
    )
    NOT_INDEXED_YET = (
        Severity.INFORMATION,
        "the newest records are not in the index yet",
        _NONE,
    )
    OFFSET_BEYOND_END = (
        Severity.REPAIRABLE,
        "the offset of a consumer group is past the end of its queue by this many messages: "
        "the group misses that many of the next messages",
        "reset the group's offset while the broker runs, for example with mqadmin "
        "resetOffsetByTime",
    )
    OFFSET_EXPIRED = (
        Severity.INFORMATION,
        "messages that were deleted before a consumer group consumed them",
        _NONE,
    )
    CHECKPOINT = (
        Severity.REPAIRABLE,
        "the checkpoint is not plausible: after a crash, recovery may begin too late",
        "run rocketmq-store recover, or remove the file: recovery then reads the whole log",
    )
    NO_CHECKPOINT = (
        Severity.INFORMATION,
        "there is no complete checkpoint: recovery reads the whole log",
        _NONE,
    )
    SETTINGS_STOP = (
        Severity.REPAIRABLE,
        "a settings file cannot be read, nor can its .bak: a broker does not start",
        "restore one of them; if you move both away, a broker starts without these settings",
    )
    SETTINGS_LOST = (
        Severity.REPAIRABLE,
        "a settings file cannot be read, and it has no readable .bak: a broker starts "
        "without these settings",
        "restore it before you start a broker, which overwrites it",
    )
    SETTINGS_OLD = (
        Severity.REPAIRABLE,
        "a settings file cannot be read: a broker uses its .bak, which has an earlier state",
        "copy the .bak over it, if that is recent enough",
    )
    SETTINGS_BACKUP = (
        Severity.INFORMATION,
        "the .bak of a settings file cannot be read: a broker will not start if the file "
        "itself becomes unreadable",
        _NONE,
    )
    TOPIC_UNKNOWN = (
        Severity.INFORMATION,
        "queues of topics that are not in topics.json",
        _NONE,
    )
    NOT_STOPPED = (
        Severity.INFORMATION,
        "the store was not stopped cleanly: a broker recovers it when it starts",
        RECOVER,
    )

    def __init__(self, severity: Severity, meaning: str, advice: str) -> None:
        self.severity = severity
        self.meaning = meaning
        self.advice = advice

    @property
    def label(self) -> str:
        """Name as shown in reports."""
        return self.name.lower().replace("_", " ")


HINDER_RECOVERY = frozenset(
    {
        *(FindingKind.LOG_GAP, FindingKind.LOG_MISSING, FindingKind.NO_RECORD),
        *(FindingKind.SEGMENT_MISSING, FindingKind.SEGMENT_SIZE, FindingKind.ENTRY_HEADER),
        *(FindingKind.BODY_CRC, FindingKind.PROPERTY_CRC, FindingKind.UNREADABLE),
        *(FindingKind.STRANGE_FILE, FindingKind.QUEUE_FILE_SIZE, FindingKind.QUEUE_TYPE),
        *(FindingKind.SETTINGS_STOP, FindingKind.NO_PERMISSION),
    }
)
"""If a store has one of these findings, recovery is refused, or cuts the log if allowed to."""
