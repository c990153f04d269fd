# SPDX-License-Identifier: Apache-2.0
"""Checks of topic and group names.

Source: RocketMQ ``Validators``, ``TopicValidator`` (release 5.3.3). Since 5.5, retry and dead
letter topics may be longer than other topics, and groups have at most 120 characters; clients
still accept longer groups, as does a broker whose store is from an older release.
"""

from __future__ import annotations

import re

from rmqnet.errors import ClientError
from store_core.topics import DLQ_PREFIX, RETRY_PREFIX

MAX_TOPIC_CHARACTERS = 127
MAX_GROUP_CHARACTERS = 255
MAX_GROUP_CHARACTERS_5_5 = 120
MAX_PREFIXED_TOPIC_CHARACTERS = 255
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
_ALLOWED = "letters of a to z, digits, % | - and _"
_RESERVED = "DEFAULT_CONSUMER"


def check_topic_name(topic: str) -> str:
    """Return a topic name; ClientError if it is not valid."""
    is_prefixed = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    most = MAX_PREFIXED_TOPIC_CHARACTERS if is_prefixed else MAX_TOPIC_CHARACTERS
    return _checked("topic", topic, most)


def check_group_name(group: str, most_characters: int = MAX_GROUP_CHARACTERS) -> str:
    """Return the name of a producer or consumer group; ClientError if it is not valid."""
    return _checked("group", group, most_characters)


def _checked(what: str, name: str, most_characters: int) -> str:
    if not name or name.isspace():
        raise ClientError(f"the {what} is blank")
    if _LEGAL.fullmatch(name) is None:
        raise ClientError(f"the {what} {name[:300]!r} has characters other than {_ALLOWED}")
    if len(name) > most_characters:
        raise ClientError(
            f"the {what} has {len(name)} characters, at most {most_characters} are allowed: "
            f"{name[:40]}…"
        )
    return name


# Source: RocketMQ ``DefaultMQPushConsumerImpl.checkConfig`` (release 5.3.3).
def check_consumer_group(group: str) -> str:
    """Return the name of a consumer group; ClientError if it is not valid or reserved."""
    if group == _RESERVED:
        raise ClientError(f"group {group}: this name means 'none given'; choose another")
    return check_group_name(group)
