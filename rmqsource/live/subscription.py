"""What brokers are told to leave out; every row is looked at again here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from rmqsource.live.live_queues import PLAIN
from store_core.layout.message import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from rmqsource.live.live_queues import QueueRange
    from rmqsource.options.source_options import SourceOptions

TAG, SQL92 = "TAG", "SQL92"
_ALL = "*"
_NOT_IN_EVERY_DIALECT = re.compile(r"CONTAINS|STARTSWITH|ENDSWITH", re.IGNORECASE)


class Subscription(NamedTuple):
    """Expression and its kind, as a pull says them."""

    expression: str
    kind: str

    @property
    def selects_all(self) -> bool:
        """Whether no message is left out."""
        return self.expression == _ALL


EVERYTHING = Subscription(_ALL, TAG)


def subscription_of(options: SourceOptions) -> Subscription:
    """Return what brokers may leave out for a read: more than that is filtered here.

    A pull has one expression: tags go before SQL, as they are cheaper for a broker. Words of SQL
    that not every release knows as operators are not sent: a broker of another release would leave
    out other messages.
    """
    tags = options.tags
    where = [c.values for c in options.where if c.column == "tags" and c.operator in {"=", "in"}]
    for values in where:
        tags = tuple(values) if tags is None else tuple(t for t in tags if t in values)
    if tags and all(_is_plain(tag) for tag in tags):
        return Subscription(" || ".join(tags), TAG)
    text = options.sql_filter
    if text is not None and not _NOT_IN_EVERY_DIALECT.search(text):
        return Subscription(text, SQL92)
    return EVERYTHING


def _is_plain(tag: str) -> bool:
    """Return whether a tag is in an expression what it is."""
    return bool(tag) and tag == tag.strip() and "||" not in tag and tag != _ALL


def pushed(subscription: Subscription, part: QueueRange) -> Subscription:
    """Return what may be said to a queue's broker so that no row is missing.

    Where units of a queue do not speak of the messages themselves, all are pulled: inner batches
    have tags and properties of their own, and delayed messages a time in the tag's place.
    """
    if part.kind != PLAIN or part.queue.topic == SCHEDULE_TOPIC:
        return EVERYTHING
    return subscription
