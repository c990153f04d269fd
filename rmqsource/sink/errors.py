# SPDX-License-Identifier: Apache-2.0
"""Errors of the sinks, by what the user can do next."""

from __future__ import annotations

from rmqsource.errors import SourceError


class SinkSchemaError(SourceError, ValueError):
    """The DataFrame has an unknown column, a column of a wrong type, or lacks one."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"columns to write: {self.reason}"


class SinkRowError(SourceError, ValueError):
    """A row cannot be a message, and ``badRows`` is ``fail``. Nothing was appended."""

    def __init__(self, column: str, reason: str, row: str) -> None:
        super().__init__(column, reason, row)
        self.column, self.reason, self.row = column, reason, row

    def __str__(self) -> str:
        return (
            f"column {self.column!r}: {self.reason}. First such row: {self.row}. To skip and "
            "count such rows, set option 'badRows' to drop"
        )


class SinkCommitError(SourceError):
    """The job cannot be committed; messages stored before are intact."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(store, reason)
        self.store, self.reason = store, reason

    def __str__(self) -> str:
        return f"store {self.store}: {self.reason}"
