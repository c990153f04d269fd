# SPDX-License-Identifier: Apache-2.0
"""A consumer's subscription to a topic.

Source: RocketMQ ``FilterAPI``, ``SubscriptionData``, ``PullAPIWrapper.processPullResult`` (release
5.3.3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqnet.client.heartbeat_data import TAG, SubscriptionData
from rmqnet.errors import ClientError
from store_core.errors import StoreConfigError
from store_core.filter.tag_filter import SUBSCRIBE_ALL, TagFilter

if TYPE_CHECKING:
    from store_core.message import Message

SQL92 = "SQL92"


@dataclass
class Subscription:
    """A topic and a filter for its messages.

    Brokers compare only hashes of tags, so this class compares the tags again. Only brokers
    evaluate SQL expressions.

    Parameters
    ----------
    expression_type
        ``TAG`` or ``SQL92``.
    version
        Milliseconds since the epoch; a broker uses the newest version that a group's members send.

    Raises
    ------
    ClientError
        The expression has no tag, or the SQL expression is empty.
    """

    topic: str
    expression: str
    expression_type: str
    version: int
    _tags: TagFilter = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.expression_type != TAG and not self.expression:
            raise ClientError(f"topic {self.topic}: the SQL expression is empty")
        try:
            self._tags = TagFilter(
                self.expression if self.expression_type == TAG else SUBSCRIBE_ALL
            )
        except StoreConfigError as err:
            raise ClientError(f"topic {self.topic}: {err}") from err
        if self.expression_type == TAG:
            self.expression = self._tags.expression

    def wanted(self, messages: list[Message]) -> list[Message]:
        """Return the messages whose tag is subscribed; all of them without a tag filter."""
        tags = self._tags.tags
        return messages if tags is None else [each for each in messages if each.tags in tags]

    def data(self) -> SubscriptionData:
        """Return the subscription's data for heartbeats."""
        return SubscriptionData(
            self.topic,
            self.expression,
            tuple(sorted(self._tags.tags or ())),
            tuple(sorted(self._tags.codes)),
            self.version,
            self.expression_type,
        )
