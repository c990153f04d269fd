# SPDX-License-Identifier: Apache-2.0
"""Errors of the Spark source, by what the user can do next."""

from __future__ import annotations


class SourceError(Exception):
    """Root of every error raised by ``rmqsource``.

    Arguments are positional and plain, so that errors survive pickling in a worker's process.
    """


class SourceOptionError(SourceError, ValueError):
    """An option is unknown, malformed, out of bounds, or contradicts another one."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(option, reason)
        self.option, self.reason = option, reason

    def __str__(self) -> str:
        return f"option {self.option!r}: {self.reason}"


class SourceSchemaError(SourceError, ValueError):
    """The schema given by the user does not fit the table."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(table, reason)
        self.table, self.reason = table, reason

    def __str__(self) -> str:
        return f"schema of table {self.table!r}: {self.reason}"


class DataLossError(SourceError):
    """Selected offsets or files are gone, and ``failOnDataLoss`` is true."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(store, reason)
        self.store, self.reason = store, reason

    def __str__(self) -> str:
        return (
            f"store {self.store}: {self.reason}. To read what is left, set option "
            "'failOnDataLoss' to false; table 'plan' then lists what is missing"
        )


class StreamDataLossError(DataLossError):
    """A stream cannot continue where it was, and ``failOnDataLoss`` is true."""

    def __init__(self, store: str, reason: str, instead: str) -> None:
        super().__init__(store, reason)
        self.args = (store, reason, instead)
        self.instead = instead

    def __str__(self) -> str:
        return (
            f"store {self.store}: {self.reason}. To continue anyway, start the query again "
            f"with option 'failOnDataLoss' set to false: {self.instead}"
        )


class DamagedStoreError(SourceError):
    """Bytes of a store are damaged, and ``mode`` is ``FAILFAST``."""

    def __init__(self, store: str, path: str, position: int, reason: str) -> None:
        super().__init__(store, path, position, reason)
        self.store, self.path, self.position, self.reason = store, path, position, reason

    def __str__(self) -> str:
        return (
            f"store {self.store}: {self.path} at byte {self.position}: {self.reason}. To read "
            "everything else, set option 'mode' to PERMISSIVE (one row per gap in column "
            "_corrupt_record) or DROPMALFORMED"
        )
