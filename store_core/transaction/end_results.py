# SPDX-License-Identifier: Apache-2.0
"""Results of ending and checking transactions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store_core.results import PutMessageResult


class EndStatus(Enum):
    """Outcome of an answer."""

    ENDED = "ended"
    """The transaction was committed or rolled back."""
    IGNORED = "ignored"
    """The answer was `TransactionState.UNKNOW`."""
    ALREADY_ENDED = "already ended"
    """The transaction was answered, or given up by checks, before; nothing changed."""
    ILLEGAL_OPERATION = "illegal operation"
    """It answers no check, and the time that the producer set is over: a check will ask."""
    NOT_FOUND = "not found"
    """The half message does not exist or belongs to another producer group."""
    PUT_FAILED = "put failed"
    """The commit was refused; the transaction stays open."""


@dataclass(frozen=True)
class EndTransactionResult:
    """Result of ``end_transaction``.

    Attributes
    ----------
    status
        Outcome of the answer.
    put_result
        Result of putting the message that consumers get; None without a commit.
    reason
        Why the transaction did not end; empty if it did, and for IGNORED.
    """

    status: EndStatus
    put_result: PutMessageResult | None = None
    reason: str = ""


@dataclass(frozen=True)
class BulkEnd:
    """Result of ``end_transactions``.

    Attributes
    ----------
    refused
        Queue offset -> why its commit was refused; the transaction stays open.
    """

    ended: int
    not_open: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)


@dataclass
class CheckResult:
    """Result of one check."""

    asked: int = 0
    immune: int = 0
    discarded: int = 0
    half_offset: int = 0
    op_offset: int = 0
