# SPDX-License-Identifier: Apache-2.0
"""Kinds of topics, and the properties by which a broker moves messages between them.

Source: RocketMQ ``TopicValidator``, ``MixAll``, ``MessageConst``, ``TransactionalMessageUtil``
(release 5.3.3);
``TransMessageRocksDBStore`` (release 5.5.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store_core.arrow import pa, pc
from store_core.layout import LMQ_PREFIX, PROPERTY_TIMER_OUT_MS, SCHEDULE_TOPIC

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from store_core.config.config_files import TopicConfig

__all__ = ["SCHEDULE_TOPIC", "numbers_of", "property_of", "topic_kind"]

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DATABASE_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
DATABASE_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
"""Topics of brokers from 5.4 on with ``transRocksDBEnable``, instead of the two above."""
HALF_TOPICS = (HALF_TOPIC, DATABASE_HALF_TOPIC)
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
PRODUCER_GROUP = "PGROUP"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
HALF_PLACE = "TRANS_OFFSET"
"""In a message of `DATABASE_OP_TOPIC`: log offset of the half message that it ends."""
DELAY_LEVEL = "DELAY"
TIMER_OUT_MS = PROPERTY_TIMER_OUT_MS
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"

NORMAL = "normal"
"""The kind of topics that applications send to."""

_DIGITS = r"^[0-9]{1,18}$"
_PREFIXES = {RETRY_PREFIX: "retry", DLQ_PREFIX: "dlq", LMQ_PREFIX: "lmq"}
_NAMES = {
    SCHEDULE_TOPIC: "delay",
    TIMER_TOPIC: "delay",
    HALF_TOPIC: "transaction",
    OP_TOPIC: "transaction",
    DATABASE_HALF_TOPIC: "transaction",
    DATABASE_OP_TOPIC: "transaction",
    DISCARD_TOPIC: "transaction",
    "RMQ_SYS_TRACE_TOPIC": "system",
    "TBW102": "system",
    "BenchmarkTest": "system",
    "SELF_TEST_TOPIC": "system",
    "OFFSET_MOVED_EVENT": "system",
    "CHECKPOINT_TOPIC": "system",
}
# Source: TopicValidator (system topics and their prefix), MixAll.getReplyTopic (RocketMQ 5.3.3).
SYSTEM_PREFIX = "rmq_sys_"
_REPLY_SUFFIX = "_REPLY_TOPIC"
_PERM_INHERIT = 1


def topic_kind(topic: str, config: TopicConfig | None = None) -> str:
    """Return the kind of a topic.

    ``retry`` and ``dlq`` (of a consumer group), ``lmq`` (light queue), ``delay`` (messages that
    wait for their time), ``transaction`` (half messages, their op messages, those checked too
    often), ``system`` (any other that the broker itself makes), else ``normal``.

    Parameters
    ----------
    config
        Its settings, if known: topics named after the cluster and the broker are recognized only
        by the permission to inherit, which a broker gives only to its own templates.
    """
    for prefix, kind in _PREFIXES.items():
        if topic.startswith(prefix):
            return kind
    if topic in _NAMES:
        return _NAMES[topic]
    if topic.startswith(SYSTEM_PREFIX) or topic.endswith(_REPLY_SUFFIX):
        return "system"
    return "system" if config is not None and config.perm & _PERM_INHERIT else NORMAL


def property_of(properties: Any, name: str) -> Any:
    """Return the values of a property in a ``properties`` column; null where it is absent."""
    return pc.map_lookup(properties, pa.scalar(name), "first")


def numbers_of(texts: Any, absent: int = -1) -> npt.NDArray[np.int64]:
    """Parse texts as numbers; ``absent`` for nulls and other texts.

    Only digits count: nothing that a broker writes here has a sign.
    """
    good = pc.match_substring_regex(texts, _DIGITS)
    found = pc.if_else(pc.fill_null(good, False), texts, pa.scalar(str(absent)))
    numbers: npt.NDArray[np.int64] = pc.cast(found, pa.int64()).to_numpy(zero_copy_only=False)
    return numbers
