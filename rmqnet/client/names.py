"""Names that topics and groups may have.

Source: RocketMQ ``Validators``, ``TopicValidator`` (release 5.3.3).
"""

from __future__ import annotations

import re

from rmqnet.errors import ClientError

MAX_TOPIC_CHARACTERS = 127
MAX_GROUP_CHARACTERS = 255
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
_ALLOWED = "letters of a to z, digits, % | - and _"


def check_topic_name(topic: str) -> str:
    """Return the name of a topic; ClientError for what is none."""
    return _checked("topic", topic, MAX_TOPIC_CHARACTERS)


def check_group_name(group: str) -> str:
    """Return the name of a group of producers or consumers; ClientError for what is none."""
    return _checked("group", group, MAX_GROUP_CHARACTERS)


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
