"""What a topic is for, told by its name as RocketMQ does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.layout.message import LMQ_PREFIX, SCHEDULE_TOPIC

if TYPE_CHECKING:
    from store_core.config_files import TopicConfig

_PREFIXES = {"%RETRY%": "retry", "%DLQ%": "dlq", LMQ_PREFIX: "lmq"}
_NAMES = {
    SCHEDULE_TOPIC: "delay",
    "rmq_sys_wheel_timer": "delay",
    "RMQ_SYS_TRANS_HALF_TOPIC": "transaction",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": "transaction",
    "TRANS_CHECK_MAX_TIME_TOPIC": "transaction",
    "RMQ_SYS_TRACE_TOPIC": "system",
    "TBW102": "system",
    "BenchmarkTest": "system",
    "SELF_TEST_TOPIC": "system",
    "OFFSET_MOVED_EVENT": "system",
    "CHECKPOINT_TOPIC": "system",
}
# Source: TopicValidator (system topics and their prefix), MixAll.getReplyTopic (RocketMQ 5.3.3).
_SYSTEM_PREFIX = "rmq_sys_"
_REPLY_SUFFIX = "_REPLY_TOPIC"
_PERM_INHERIT = 1


def topic_kind(topic: str, config: TopicConfig | None = None) -> str:
    """Return the kind of a topic.

    ``retry`` and ``dlq`` (of a consumer group), ``lmq`` (light queue), ``delay`` (messages that
    wait for their time), ``transaction`` (half messages, their op messages, those checked too
    often), ``system`` (any other that the broker itself makes), else ``normal``.

    Parameters
    ----------
    topic
        Its name.
    config
        Its settings, if known: the topics named after the cluster and the broker can be told
        only by the permission to inherit, which a broker gives to its own templates alone.
    """
    for prefix, kind in _PREFIXES.items():
        if topic.startswith(prefix):
            return kind
    if topic in _NAMES:
        return _NAMES[topic]
    if topic.startswith(_SYSTEM_PREFIX) or topic.endswith(_REPLY_SUFFIX):
        return "system"
    return "system" if config is not None and config.perm & _PERM_INHERIT else "normal"
