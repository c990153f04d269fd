"""RocketMQ's message store: read without a broker, and without Spark.

Names are loaded when they are first used: importing the package alone costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from store_core.codec.compression import CorruptBodyError
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.errors import (
        CorruptRecordError,
        FilterEvaluationError,
        FilterSyntaxError,
        HAError,
        IgnoredInputWarning,
        LogDamageError,
        OffsetOutOfRangeError,
        StoreClosedError,
        StoreConfigError,
        StoreError,
        StoreFormatError,
        StoreLockedError,
        StoreNotFoundError,
        StoreReadError,
        StoreWriteError,
        TransactionError,
    )
    from store_core.filter.sql_filter import SqlFilter
    from store_core.filter.tag_filter import TagFilter
    from store_core.ha.follow_state import FollowState
    from store_core.ha.ha_client import HAClient
    from store_core.ha.ha_connection import SlaveState
    from store_core.ha.ha_service import HAService
    from store_core.message import Message
    from store_core.message_store import MessageStore
    from store_core.results import (
        AppendBatchResult,
        AppendMessageResult,
        AppendMessageStatus,
        GetMessageResult,
        GetMessageStatus,
        PutMessageResult,
        PutMessageStatus,
        QueryMessageResult,
    )
    from store_core.schedule.schedule_message_service import ScheduleMessageService
    from store_core.state.store_state import StoreState
    from store_core.store_snapshot import StoreSnapshot
    from store_core.timer.timer_message_store import TimerMessageStore
    from store_core.transaction.end_results import EndStatus, EndTransactionResult
    from store_core.transaction.transactional_message_service import TransactionalMessageService
    from store_core.transaction_forms import TransactionState

__all__ = [
    "AppendBatchResult",
    "AppendMessageResult",
    "AppendMessageStatus",
    "CorruptBodyError",
    "CorruptRecordError",
    "EndStatus",
    "EndTransactionResult",
    "FilterEvaluationError",
    "FilterSyntaxError",
    "FollowState",
    "GetMessageResult",
    "GetMessageStatus",
    "HAClient",
    "HAError",
    "HAService",
    "IgnoredInputWarning",
    "LogDamageError",
    "Message",
    "MessageStore",
    "MessageStoreConfig",
    "OffsetOutOfRangeError",
    "PutMessageResult",
    "PutMessageStatus",
    "QueryMessageResult",
    "ScheduleMessageService",
    "SlaveState",
    "SqlFilter",
    "StoreClosedError",
    "StoreConfigError",
    "StoreError",
    "StoreFormatError",
    "StoreLockedError",
    "StoreNotFoundError",
    "StoreReadError",
    "StoreSnapshot",
    "StoreState",
    "StoreWriteError",
    "TagFilter",
    "TimerMessageStore",
    "TransactionError",
    "TransactionState",
    "TransactionalMessageService",
]

_MODULES = {
    "AppendBatchResult": "results",
    "AppendMessageResult": "results",
    "AppendMessageStatus": "results",
    "CorruptBodyError": "codec.compression",
    "EndStatus": "transaction.end_results",
    "EndTransactionResult": "transaction.end_results",
    "FollowState": "ha.follow_state",
    "GetMessageResult": "results",
    "GetMessageStatus": "results",
    "HAClient": "ha.ha_client",
    "HAService": "ha.ha_service",
    "Message": "message",
    "MessageStore": "message_store",
    "MessageStoreConfig": "config.message_store_config",
    "PutMessageResult": "results",
    "PutMessageStatus": "results",
    "QueryMessageResult": "results",
    "ScheduleMessageService": "schedule.schedule_message_service",
    "SlaveState": "ha.ha_connection",
    "SqlFilter": "filter.sql_filter",
    "StoreSnapshot": "store_snapshot",
    "StoreState": "state.store_state",
    "TagFilter": "filter.tag_filter",
    "TimerMessageStore": "timer.timer_message_store",
    "TransactionState": "transaction_forms",
    "TransactionalMessageService": "transaction.transactional_message_service",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
