# SPDX-License-Identifier: Apache-2.0
"""Errors of the store core, by what the caller can do next."""

from __future__ import annotations


class StoreError(Exception):
    """Root of every error raised by ``store_core``."""


class StoreConfigError(StoreError, ValueError):
    """A setting is unknown, out of bounds, or contradicts the files; the text names it."""


class FilterSyntaxError(StoreConfigError):
    """The SQL filter is not valid in RocketMQ's dialect.

    Parameters
    ----------
    reason
        The mistake.
    expression
        The whole text.
    position
        Number of characters before the mistake.
    token
        The token there; empty at the end of the text.
    expected
        The tokens allowed there, or the text to write instead.
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
    """The path does not exist or is not a RocketMQ store."""


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
    """The store has its log, queues or settings in a form that is not supported here."""


class CorruptRecordError(StoreError):
    """Bytes on disk contradict the layout.

    Parameters
    ----------
    reason
        The contradiction.
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
    """The user may not read a file of the store; nothing is wrong with the file."""


class FileVanishedError(StoreReadError):
    """A file that was listed a moment ago is gone: the writer of the store deleted it."""


class OffsetOutOfRangeError(StoreError):
    """The requested offsets are not, or no longer, in the store."""


class StoreWriteError(StorePathError):
    """A file of the store cannot be created, written or flushed (disk full, permission, …).

    The store's earlier content is intact.
    """


class CommitInDoubtError(StoreWriteError):
    """A job may be in the log or not: the disk failed at the one write that decides it."""


class StoreLockedError(StorePathError):
    """Another process has the store open; the text says which, as far as is known."""


class TransactionError(StoreError):
    """A transaction could not be opened or ended; the text gives its present state."""


class HAError(StoreError):
    """Replication cannot go on; the text names the peer, the cause and the remedy."""


class LogDamageError(StoreError):
    """Recovery would have to cut readable records off the log, without permission to do so.

    Parameters
    ----------
    reason
        The damage, the records after it, and the remedy.
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
    """RocketMQ silently stops reading a SQL filter before its text ends."""
