"""Results of ending and checking transactions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store_core.results import PutMessageResult


class EndStatus(Enum):
    """What became of an answer."""

    ENDED = "ended"
    """Committed or rolled back, as it said."""
    IGNORED = "ignored"
    """It was `TransactionState.UNKNOW`."""
    ALREADY_ENDED = "already ended"
    """An answer came before; this one changed nothing."""
    ILLEGAL_OPERATION = "illegal operation"
    """Nobody asked, and the time that the producer set is over: a check will ask."""
    NOT_FOUND = "not found"
    """There is no such half message, or it is not that of this producer group."""
    PUT_FAILED = "put failed"
    """The commit was refused; the transaction stays open."""


@dataclass(frozen=True)
class EndTransactionResult:
    """Answer of ``end_transaction``.

    Attributes
    ----------
    status
        What became of the answer.
    put_result
        Of the message that consumers get; None without a commit.
    reason
        Why it did not end; empty where it did.
    """

    status: EndStatus
    put_result: PutMessageResult | None = None
    reason: str = ""


@dataclass(frozen=True)
class BulkEnd:
    """Answer of ``end_transactions``.

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
    """What one check did."""

    asked: int = 0
    immune: int = 0
    discarded: int = 0
    half_offset: int = 0
    op_offset: int = 0
