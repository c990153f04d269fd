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


_INDEX_FIX = "rocketmq-store rebuild-index makes the index anew from the log"
QUEUE_FIX = "rocketmq-store rebuild-queues makes the queues anew from the log"
_LOG_FIX = "read what is good with mode=PERMISSIVE; do not start a broker before you copied it"
_START_FIX = "move the file out of the store before you start a broker"
_COMPACTED_FIX = (
    "read what is good with access=compaction and mode=PERMISSIVE; bring compaction/ back from a "
    "copy: a broker does not make it anew"
)
_TIMER_FIX = (
    "move config/timercheck away while no broker runs: the next one takes all timer messages of "
    "the log for new, so that those that were delivered or cancelled come once more"
)
_ENTRY_INDEX_FIX = (
    "move dledger-*/index away while no broker runs: DLedger makes it anew from its data at the "
    "next start"
)
RECOVER = "rocketmq-store recover does it now"
_NONE = "nothing to do"


class FindingKind(Enum):
    """Kinds of findings, each with its severity, its meaning, and what to do about it."""

    LOG_GAP = (
        Severity.DAMAGE,
        "no record can be read here: its messages are lost; a recovery by RocketMQ that comes "
        "here cuts off all after it",
        _LOG_FIX,
    )
    ENTRY_HEADER = (
        Severity.DAMAGE,
        "the header of a DLedger entry is not what was stored; its message is good, but a recovery "
        "by DLedger that comes here cuts off all after it",
        _LOG_FIX,
    )
    ENTRY_INDEX = (
        Severity.REPAIRABLE,
        "the index of the DLedger log does not lead to these entries: their messages are good, but "
        "the node cannot send them to another that lacks them",
        _ENTRY_INDEX_FIX,
    )
    ENTRY_INDEX_LATE = (
        Severity.INFORMATION,
        "the index of the DLedger log does not lead to these entries of its last three files: "
        "DLedger writes their units anew at its next start",
        _NONE,
    )
    LOG_TAIL = (
        Severity.DAMAGE,
        "bytes after the last readable record are no record, as after a crash in the middle "
        "of a write",
        "the next recovery cuts them off",
    )
    LOG_MISSING = (
        Severity.DAMAGE,
        "the log has no file, but the store held messages",
        "look whether a disk is not mounted, or storePathCommitLog is another; else bring the "
        "log back from a copy or a replica",
    )
    LOG_UNKNOWN = (
        Severity.NOT_CHECKED,
        "the log has no file, and nothing says that a broker made this store",
        "look whether a disk is not mounted, or the path or storePathCommitLog is another",
    )
    NO_RECORD = (
        Severity.DAMAGE,
        "the files of the log are not empty, and no record can be read in them",
        "look whether these are files of a commit log; bring them back from a copy or a replica",
    )
    LOG_END_LOST = (
        Severity.DAMAGE,
        "the log ends too early: the rest of the store names messages that followed, and they are "
        "lost",
        "look whether a disk of the log is not mounted, or bring its last files back from a copy "
        "or a replica; else rocketmq-store recover --cut gives these messages up",
    )
    SEGMENT_MISSING = (
        Severity.DAMAGE,
        "files of the log are gone between others; their messages are lost",
        "bring the files back from a copy or a replica",
    )
    BODY_CRC = (
        Severity.DAMAGE,
        "the body is not what was stored; a recovery by RocketMQ that comes here cuts the log",
        _LOG_FIX,
    )
    BODY_FLAGS = (
        Severity.DAMAGE,
        "the body is what was stored, but not what the record's flags say it is (compressed, a "
        "batch): no consumer can decode it",
        "body=raw reads a body that is not compressed, mode=PERMISSIVE leaves out what is no "
        "batch; a broker serves both, and its consumers fail",
    )
    PROPERTY_CRC = (
        Severity.DAMAGE,
        "the record is not what was stored (its own CRC over all bytes); topic, properties or "
        "header may be wrong",
        _LOG_FIX,
    )
    STORE_TIME = (
        Severity.DAMAGE,
        "records whose store time lies far from those before and after: it is not what was "
        "stored, and reads of a time window may miss them",
        _LOG_FIX,
    )
    QUEUE_OFFSET = (
        Severity.DAMAGE,
        "records whose queue offset is none that those before and after them in the queue leave "
        "room for: it is not what was stored. They are read at their place; a client that gets one "
        "may commit a wrong offset",
        "rocketmq-store salvage gives them the right one in a new store",
    )
    NOT_QUEUED = (
        Severity.DAMAGE,
        "records that say to be prepared or rolled back in a transaction, but have a queue offset, "
        "which brokers give to none of these: one of the two is not what was stored. A queue that "
        "is made anew does not have them, and consumers do not get them",
        "read them with access=commitlog",
    )
    SEGMENT_SIZE = (
        Severity.DAMAGE,
        "a file of the log does not have the size of a segment: a broker does not start",
        "bring the file back from a copy",
    )
    UNREADABLE = (
        Severity.DAMAGE,
        "the file cannot be read",
        "check the disk",
    )
    NO_PERMISSION = (
        Severity.NOT_CHECKED,
        "the file may not be read by this user, so it and what hangs on it was not checked",
        "check again as a user who may read it",
    )
    STALE_BYTES = (
        Severity.INFORMATION,
        "bytes after the end of the log, left by an old cut or a crash: no data",
        _NONE,
    )
    ODD_BLANK = (
        Severity.INFORMATION,
        "the blank record that closes the segment tells another length than is left; nobody "
        "reads it",
        _NONE,
    )
    STRANGE_FILE = (
        Severity.REPAIRABLE,
        "RocketMQ takes every file here for a segment and cannot read this name: a broker "
        "does not start",
        _START_FIX,
    )
    QUEUE_FILE_SIZE = (
        Severity.REPAIRABLE,
        "a queue file of another size than its neighbours: a broker does not start",
        QUEUE_FIX,
    )
    QUEUE_UNREADABLE = (
        Severity.REPAIRABLE,
        "files of the queue are missing, cut or contradict each other",
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
        "records that say to be of a queue that cannot be: its number is negative, or its topic "
        "no name of a directory. They are in no queue",
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
        "start, puts them there",
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
        "the queue lost its files, and began at offset 0 again with the next message: consumers "
        "never get the records from before",
        "copy these messages to a new store (rocketmq-store salvage)",
    )
    UNIT_EMPTY = (
        Severity.REPAIRABLE,
        "empty units between others: RocketMQ takes such a place for the end of the queue",
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
        "units that do not stand at the queue offset that their record has",
        QUEUE_FIX,
    )
    UNIT_DISOWNED = (
        Severity.DAMAGE,
        "units whose records have their size and queue offset, but say to be of another queue, or "
        "of a transaction that is not committed: what these say was damaged. Consumers get them",
        "keep the queue: nothing mends the records, and a queue made anew does not have them",
    )
    UNIT_SHIFTED = (
        Severity.INFORMATION,
        "units before the queue offset that their records have: records before them are lost, and "
        "the queue closed up when it was made anew",
        _NONE,
    )
    UNIT_TAGS = (
        Severity.REPAIRABLE,
        "units whose tags code is not that of their record: consumers that filter by tag miss "
        "messages",
        QUEUE_FIX,
    )
    UNIT_TIME = (
        Severity.INFORMATION,
        "delivery times that do not follow from messageDelayLevel; give the broker's "
        "configuration, or it was changed since",
        _NONE,
    )
    UNIT_DELIVERY = (
        Severity.REPAIRABLE,
        "delivery times that no delay level gives: before their record was stored, or not whole "
        "seconds after it. Such a message comes too early or too late",
        "rocketmq-store rebuild-queues with --config and the broker's configuration file, from "
        "which delivery times follow",
    )
    EXT_UNIT = (
        Severity.REPAIRABLE,
        "extension units that are not those of their record: filters miss messages",
        QUEUE_FIX,
    )
    EXT_MISSING = (
        Severity.REPAIRABLE,
        "extension units that are not there: filters let such messages pass",
        QUEUE_FIX,
    )
    UNIT_BEHIND_END = (
        Severity.REPAIRABLE,
        "old units that point after the end of the log: after more messages RocketMQ may "
        "count them again",
        QUEUE_FIX,
    )
    UNIT_OF_LOST_RECORD = (
        Severity.INFORMATION,
        "units of records in the damaged parts of the log: so many messages of the queue are lost",
        _NONE,
    )
    QUEUE_HOLE = (
        Severity.INFORMATION,
        "queue offsets of a batch queue that no unit has, between units of good records: the "
        "records between them are lost",
        _NONE,
    )
    QUEUE_ORDER = (
        Severity.REPAIRABLE,
        "units of a batch queue do not follow each other",
        QUEUE_FIX,
    )
    COMPACTED_FILES = (
        Severity.DAMAGE,
        "files of a compacted log and of its queue do not belong together, as after a crash while "
        "the broker replaced them: a broker may not start, and consumers may miss messages",
        _COMPACTED_FIX,
    )
    COMPACTED_UNIT = (
        Severity.DAMAGE,
        "units of a compacted log's queue that do not name a record of it: consumers get nothing "
        "or garbage there",
        _COMPACTED_FIX,
    )
    COMPACTED_BODY = (
        Severity.DAMAGE,
        "bodies in a compacted log that are not what was stored",
        _COMPACTED_FIX,
    )
    COMPACTED_WITHOUT_UNIT = (
        Severity.DAMAGE,
        "records of a compacted log that its queue does not name: consumers never get them",
        _COMPACTED_FIX,
    )
    COMPACTED_LOST = (
        Severity.DAMAGE,
        "messages that are the newest of their keys, and that the files of the compacted log lack: "
        "consumers get them at most until the broker restarts. RocketMQ 5.3.3 loses some when it "
        "begins a file while it replaces others; one whose KEYS were damaged (no CRC covers them) "
        "is taken for such a one, unless the index tells",
        "the commit log has them until it expires: read them with access=consumequeue at these "
        "queue offsets, and send them again",
    )
    COMPACTED_ONLY = (
        Severity.INFORMATION,
        "messages that only a compacted log still has: the commit log has lost them as it expired",
        "read them with access=compaction; a copy without compaction/ does not have them",
    )
    TIMER_FILES = (
        Severity.REPAIRABLE,
        "a file of the timer cannot be one: a broker may not start, and what waits is not known",
        "move timerwheel, timerlog and config/timercheck away while no broker runs: the next one "
        "takes all timer messages of the log for new, and delivers past ones once more",
    )
    TIMER_UNIT = (
        Severity.REPAIRABLE,
        "units of the timer log that wait and name no record of the timer's topic: nothing, or "
        "something else, is delivered at their time",
        _TIMER_FIX,
    )
    TIMER_SLOT = (
        Severity.REPAIRABLE,
        "slots of the timer wheel whose units are those of another time, or chained to others: "
        "messages that wait are delivered at a wrong time, or never",
        _TIMER_FIX,
    )
    TIMER_LOST = (
        Severity.REPAIRABLE,
        "timer messages that wait, as the checkpoint says, and are not in the timer log: a broker "
        "never delivers them",
        _TIMER_FIX,
    )
    NOT_READ = (
        Severity.INFORMATION,
        "a part of the store that is not read here, so it was not checked either",
        _NONE,
    )
    INDEX_UNUSABLE = (
        Severity.REPAIRABLE,
        "an index file whose length or header is impossible",
        _INDEX_FIX,
    )
    INDEX_HEADER = (
        Severity.REPAIRABLE,
        "the header of an index file does not fit its entries or the log",
        _INDEX_FIX,
    )
    INDEX_CHAIN = (
        Severity.REPAIRABLE,
        "entries that no chain reaches, or chains that lead astray: messages are not found by key",
        _INDEX_FIX,
    )
    INDEX_ENTRY = (
        Severity.REPAIRABLE,
        "entries that point at no record with such a key",
        _INDEX_FIX,
    )
    INDEX_TIME = (
        Severity.REPAIRABLE,
        "times in entries or header that are not those of the records: queries with a range of "
        "time miss messages",
        _INDEX_FIX,
    )
    INDEX_DOUBLE = (
        Severity.INFORMATION,
        "entries that are there twice, as after a crash: RocketMQ returns the message twice",
        _NONE,
    )
    INDEX_BEHIND_END = (
        Severity.REPAIRABLE,
        "entries that point after the end of the log: what is written there next will not be "
        "indexed",
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
        "give maxHashSlotNum and maxIndexNum, or the broker's file",
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
        "rocketmq-store rebuild-index indexes them, if that query is needed",
    )
    NOT_INDEXED_YET = (
        Severity.INFORMATION,
        "the newest records are not in the index yet",
        _NONE,
    )
    OFFSET_BEYOND_END = (
        Severity.REPAIRABLE,
        "the offset of a consumer group is beyond the end of its queue, by so many messages: the "
        "group misses the next ones that are stored",
        "reset the group's offset, as with mqadmin resetOffsetByTime, when the broker runs",
    )
    OFFSET_EXPIRED = (
        Severity.INFORMATION,
        "messages that were deleted before a consumer group consumed them",
        _NONE,
    )
    CHECKPOINT = (
        Severity.REPAIRABLE,
        "the checkpoint is not plausible: after a crash recovery may begin too late",
        "rocketmq-store recover, or remove the file: recovery then reads the whole log",
    )
    NO_CHECKPOINT = (
        Severity.INFORMATION,
        "there is no whole checkpoint: recovery reads the whole log",
        _NONE,
    )
    SETTINGS_STOP = (
        Severity.REPAIRABLE,
        "a file of settings cannot be read, and its .bak cannot either: a broker does not start",
        "restore one of them; moved away, they are forgotten, and a broker starts without",
    )
    SETTINGS_LOST = (
        Severity.REPAIRABLE,
        "a file of settings cannot be read, and has no .bak that can: a broker starts, and all "
        "that it said is forgotten",
        "restore it before you start a broker, which writes it anew",
    )
    SETTINGS_OLD = (
        Severity.REPAIRABLE,
        "a file of settings cannot be read: a broker takes its .bak, which says what was before",
        "copy the .bak over it, if what it says is new enough",
    )
    SETTINGS_BACKUP = (
        Severity.INFORMATION,
        "the .bak of a file of settings cannot be read: a broker does not start once the file "
        "itself cannot be read",
        _NONE,
    )
    TOPIC_UNKNOWN = (
        Severity.INFORMATION,
        "queues of topics that topics.json does not name",
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
