"""Names that topics and groups may have.

Source: RocketMQ ``Validators``, ``TopicValidator`` (release 5.3.3); since 5.5 topics of retries and
dead letters may be longer than others, and groups no longer than 120: clients take longer ones, and
a broker whose store shows an older release does.
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
    """Return the name of a topic; ClientError for what is none."""
    is_prefixed = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    most = MAX_PREFIXED_TOPIC_CHARACTERS if is_prefixed else MAX_TOPIC_CHARACTERS
    return _checked("topic", topic, most)


def check_group_name(group: str, most_characters: int = MAX_GROUP_CHARACTERS) -> str:
    """Return the name of a group of producers or consumers; ClientError for what is none."""
    return _checked("group", group, most_characters)


def _checked(what: str, name: str, most_characters: int) -> str:
    if not name or name.isspace():
        raise ClientError(f"the {what} is blank")
    if _LEGAL.fullmatch(name) is None:
        raise ClientError(f"the {what} {name[:300]!r} has characters other than {_ALLOWED}")
    if len(name) > most_characters:
        raise ClientError(
            f"the {what} has {len(name)} characters, at most {most_characters} may be: {name[:40]}…"
        )
    return name


# Source: RocketMQ ``DefaultMQPushConsumerImpl.checkConfig`` (release 5.3.3).
def check_consumer_group(group: str) -> str:
    """Return the name of a group; ClientError for what is none."""
    if group == _RESERVED:
        raise ClientError(f"group {group}: the name stands for 'none given'; choose another")
    return check_group_name(group)
