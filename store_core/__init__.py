# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's message store: read and written without a broker, and without Spark.

Names are loaded on first use: importing the package alone costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.exports import lazy_exports

# The version of all three packages; for setup.cfg setuptools reads it from this text.
__version__ = "0.1.0"

# ruff: noqa: I001 (a module stands once, though each of its names has an "as")
if TYPE_CHECKING:
    from store_core.codec.compression import CorruptBodyError as CorruptBodyError
    from store_core.config.message_store_config import MessageStoreConfig as MessageStoreConfig
    from store_core.errors import (
        CorruptRecordError as CorruptRecordError,
        FilterEvaluationError as FilterEvaluationError,
        FilterSyntaxError as FilterSyntaxError,
        HAError as HAError,
        IgnoredInputWarning as IgnoredInputWarning,
        LogDamageError as LogDamageError,
        OffsetOutOfRangeError as OffsetOutOfRangeError,
        StoreClosedError as StoreClosedError,
        StoreConfigError as StoreConfigError,
        StoreError as StoreError,
        StoreFormatError as StoreFormatError,
        StoreLockedError as StoreLockedError,
        StoreNotFoundError as StoreNotFoundError,
        StoreReadError as StoreReadError,
        StoreWriteError as StoreWriteError,
        TransactionError as TransactionError,
    )
    from store_core.filter.sql_filter import SqlFilter as SqlFilter
    from store_core.filter.tag_filter import TagFilter as TagFilter
    from store_core.ha.follow_state import FollowState as FollowState
    from store_core.ha.ha_client import HAClient as HAClient
    from store_core.ha.ha_connection import SlaveState as SlaveState
    from store_core.ha.ha_service import HAService as HAService
    from store_core.message import Message as Message
    from store_core.message_store import MessageStore as MessageStore
    from store_core.results import (
        AppendBatchResult as AppendBatchResult,
        AppendMessageResult as AppendMessageResult,
        AppendMessageStatus as AppendMessageStatus,
        GetMessageResult as GetMessageResult,
        GetMessageStatus as GetMessageStatus,
        PutMessageResult as PutMessageResult,
        PutMessageStatus as PutMessageStatus,
        QueryMessageResult as QueryMessageResult,
    )
    from store_core.schedule.schedule_message_service import (
        ScheduleMessageService as ScheduleMessageService,
    )
    from store_core.state.store_state import StoreState as StoreState
    from store_core.snapshot.store_snapshot import StoreSnapshot as StoreSnapshot
    from store_core.timer.timer_message_store import TimerMessageStore as TimerMessageStore
    from store_core.transaction.end_results import (
        EndStatus as EndStatus,
        EndTransactionResult as EndTransactionResult,
    )
    from store_core.transaction.transactional_message_service import (
        TransactionalMessageService as TransactionalMessageService,
    )
    from store_core.transaction_forms import TransactionState as TransactionState
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        globals(),
        {
            "store_core.codec.compression": "CorruptBodyError",
            "store_core.config.message_store_config": "MessageStoreConfig",
            "store_core.errors": (
                "CorruptRecordError FilterEvaluationError FilterSyntaxError HAError "
                "IgnoredInputWarning LogDamageError OffsetOutOfRangeError StoreClosedError "
                "StoreConfigError StoreError StoreFormatError StoreLockedError "
                "StoreNotFoundError StoreReadError StoreWriteError TransactionError"
            ),
            "store_core.filter.sql_filter": "SqlFilter",
            "store_core.filter.tag_filter": "TagFilter",
            "store_core.ha.follow_state": "FollowState",
            "store_core.ha.ha_client": "HAClient",
            "store_core.ha.ha_connection": "SlaveState",
            "store_core.ha.ha_service": "HAService",
            "store_core.message": "Message",
            "store_core.message_store": "MessageStore",
            "store_core.results": (
                "AppendBatchResult AppendMessageResult AppendMessageStatus GetMessageResult "
                "GetMessageStatus PutMessageResult PutMessageStatus QueryMessageResult"
            ),
            "store_core.schedule.schedule_message_service": "ScheduleMessageService",
            "store_core.state.store_state": "StoreState",
            "store_core.snapshot.store_snapshot": "StoreSnapshot",
            "store_core.timer.timer_message_store": "TimerMessageStore",
            "store_core.transaction.end_results": "EndStatus EndTransactionResult",
            "store_core.transaction.transactional_message_service": "TransactionalMessageService",
            "store_core.transaction_forms": "TransactionState",
        },
    )
