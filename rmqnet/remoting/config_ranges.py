# SPDX-License-Identifier: Apache-2.0
"""Valid ranges of the numbers in topic and group configurations that requests bring.

The parsers have already checked that each number fits its Java type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqnet.errors import RemotingFormatError

if TYPE_CHECKING:
    from store_core.config.config_files import SubscriptionGroupConfig, TopicConfig

MAX_INT, MAX_LONG = (1 << 31) - 1, (1 << 63) - 1
_MOST_PERM = 7
_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


def check_topic_ranges(config: TopicConfig, most_queues: int = MAX_INT) -> None:
    """Raise RemotingFormatError, naming topic and value, if a value is out of range."""
    name = config.topic_name
    for key, number, least, most in (
        ("readQueueNums", config.read_queue_nums, 0, most_queues),
        ("writeQueueNums", config.write_queue_nums, 0, most_queues),
        ("perm", config.perm, 0, _MOST_PERM),
    ):
        _check(f"topic {name}: {key}", number, least, most)
    if config.topic_filter_type not in _FILTER_TYPES:
        wanted = " or ".join(_FILTER_TYPES)
        raise RemotingFormatError(
            f"topic {name}: topicFilterType must be {wanted}, not {config.topic_filter_type!r:.80}"
        )


def check_group_ranges(config: SubscriptionGroupConfig, most_queues: int = MAX_INT) -> None:
    """Raise RemotingFormatError, naming group and number, if a number is out of range."""
    name = config.group_name
    for key, number, least, most in (
        ("retryQueueNums", config.retry_queue_nums, 0, most_queues),
        ("brokerId", config.broker_id, 0, MAX_LONG),
        ("whichBrokerWhenConsumeSlowly", config.which_broker_when_consume_slowly, 0, MAX_LONG),
    ):
        _check(f"group {name}: {key}", number, least, most)


def check_count(what: str, count: int, most: int) -> None:
    """Raise RemotingFormatError if one request names too many of something."""
    if count > most:
        raise RemotingFormatError(f"{count} {what} in one request: at most {most} are accepted")


def check_int(name: str, number: int) -> int:
    """Return the number; raise RemotingFormatError if it does not fit in 32 bits."""
    _check(name, number, -MAX_INT - 1, MAX_INT)
    return number


def _check(what: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise RemotingFormatError(f"{what} must be from {least} to {most}, not {number}")
