"""Names that consumer groups may have.

Source: RocketMQ ``DefaultMQPushConsumerImpl.checkConfig`` (release 5.3.3).
"""

from __future__ import annotations

from rmqnet.client import names
from rmqnet.errors import ClientError

_RESERVED = "DEFAULT_CONSUMER"


def check_group_name(group: str) -> str:
    """Return the name of a group; ClientError for what is none."""
    if group == _RESERVED:
        raise ClientError(f"group {group}: the name stands for 'none given'; choose another")
    return names.check_group_name(group)
