"""Errors of the store core, by what the caller can do next."""

from __future__ import annotations


class StoreError(Exception):
    """Root of every error raised by ``store_core``."""


class StoreConfigError(StoreError, ValueError):
    """A setting is unknown, out of bounds, or contradicts the files; the text names it."""


class FilterSyntaxError(StoreConfigError):
    """The text of a SQL filter is none that RocketMQ accepts.

    Parameters
    ----------
    reason
        What was found and what was expected.
    expression
        The whole text.
    position
        Where: characters before it.
    token
        What stands there; empty at the end of the text.
    expected
        What could stand there, or what to write in its place.
    """

    def __init__(
        self, reason: str, expression: str, position: int, token: str, expected: str
    ) -> None:
        super().__init__(reason, expression, position, token, expected)
        self.reason, self.expression = reason, expression
        self.position, self.token, self.expected = position, token, expected

    def __str__(self) -> str:
        before = self.expression[: self.position]
        line, column = before.count("\n") + 1, self.position - before.rfind("\n")
        place = f"column {column}" if line == 1 else f"line {line}, column {column}"
        return f"SQL filter, {place}: {self.reason}; expected: {self.expected}"


class FilterEvaluationError(StoreError):
    """A SQL filter has no result for these properties; a broker does not deliver such a message."""


class StoreNotFoundError(StoreError):
    """The path does not exist or holds no RocketMQ store."""


class StorePathError(StoreError):
    """Something is wrong with one file or directory."""

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(reason, path)  # positional: survives pickling between processes
        self.reason, self.path = reason, path

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class StoreFormatError(StorePathError):
    """A file of the store has a wrong size or name."""


class StoreKindError(StorePathError):
    """The store keeps its log, queues or settings in a way that is not known here."""


class CorruptRecordError(StoreError):
    """Bytes on disk contradict the layout.

    Parameters
    ----------
    reason
        What was found and what was expected.
    path
        The file.
    position
        Byte position in the file.
    """

    def __init__(self, reason: str, path: str, position: int) -> None:
        super().__init__(reason, path, position)
        self.reason, self.path, self.position = reason, path, position

    def __str__(self) -> str:
        return f"{self.path} at byte {self.position}: {self.reason}"


class StoreReadError(StorePathError):
    """A file of the store cannot be read (permission, vanished, I/O error)."""


class StorePermissionError(StoreReadError):
    """A file of the store may not be read by this user; nothing is wrong with it."""


class FileVanishedError(StoreReadError):
    """A file that was listed a moment ago is not there: whoever writes the store deleted it."""


class OffsetOutOfRangeError(StoreError):
    """Asked-for offsets are not, or no longer, in the store."""


class StoreWriteError(StorePathError):
    """A file of the store cannot be created, written or flushed (disk full, permission, …).

    What was in the store before is intact.
    """


class CommitInDoubtError(StoreWriteError):
    """A job may be in the log or not: the disk failed at the one write that decides it."""


class StoreLockedError(StorePathError):
    """Somebody else has the store open; the text says who, as far as is known."""


class TransactionError(StoreError):
    """A transaction could not be opened or ended; the text says what holds now."""


class HAError(StoreError):
    """Replication cannot go on; the text names the peer, says what was found, and what to do."""


class LogDamageError(StoreError):
    """Recovery would have to cut readable records off the log, and was not told to.

    Parameters
    ----------
    reason
        What is damaged, what lies after it, and what to do.
    path
        The damaged file.
    position
        Byte position in the file.
    records_behind
        Readable records after the damage.
    """

    def __init__(self, reason: str, path: str, position: int, records_behind: int) -> None:
        super().__init__(reason, path, position, records_behind)
        self.reason, self.path = reason, path
        self.position, self.records_behind = position, records_behind

    def __str__(self) -> str:
        return f"{self.path} at byte {self.position}: {self.reason}"


class StoreClosedError(StorePathError):
    """The store is not open: it was not loaded, or it was shut down."""


class IgnoredInputWarning(UserWarning):
    """RocketMQ stops reading a SQL filter before its text ends, and says nothing."""
