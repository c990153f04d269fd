"""Names that consumer groups may have.

Source: RocketMQ ``Validators.checkGroup``, ``DefaultMQPushConsumerImpl.checkConfig`` (release
5.3.3).
"""

from __future__ import annotations

import re

from rmqnet.errors import ClientError

_GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,255}", re.ASCII)
_RESERVED = "DEFAULT_CONSUMER"


def check_group_name(group: str) -> str:
    """Return the name of a group; ClientError for what is none."""
    if not _GROUP.fullmatch(group):
        raise ClientError(
            f"group {group!r}: 1 to 255 letters, digits and any of % | _ - are expected"
        )
    if group == _RESERVED:
        raise ClientError(f"group {group}: the name stands for 'none given'; choose another")
    return group
