# SPDX-License-Identifier: Apache-2.0
"""Requests between clients: a message and its consumer's reply.

Source: RocketMQ ``DefaultMQProducerImpl.request``, ``MessageUtil.createReplyMessage`` (release
5.3.3).
"""

from __future__ import annotations

import queue
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqnet.errors import ClientError
from store_core.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

PROPERTY_CORRELATION_ID = "CORRELATION_ID"
PROPERTY_REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PROPERTY_TTL = "TTL"
PROPERTY_MESSAGE_TYPE = "MSG_TYPE"
PROPERTY_CLUSTER = "CLUSTER"
REPLY = "reply"

_REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"


class PendingReplies:
    """Requests that wait for a reply. Thread-safe."""

    def __init__(self) -> None:
        self._waiting: dict[str, queue.SimpleQueue[Message]] = {}

    @contextmanager
    def open(self) -> Iterator[PendingReply]:
        """Yield a new pending reply; it is removed at the end of the ``with`` block."""
        pending = PendingReply()
        self._waiting[pending.correlation_id] = pending.replies
        try:
            yield pending
        finally:
            del self._waiting[pending.correlation_id]

    def take(self, reply: Message) -> bool:
        """Pass a reply to the request that waits for it; False if none does (any more)."""
        correlation_id = reply.properties.get(PROPERTY_CORRELATION_ID, "")
        waiting = self._waiting.get(correlation_id)
        if waiting is None:
            return False
        waiting.put(reply)
        return True


class PendingReply:
    """A request that waits for its reply."""

    def __init__(self) -> None:
        self.correlation_id = str(uuid.uuid4())
        self.replies: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def properties(self, client_id: str, timeout_s: float) -> dict[str, str]:
        """Return the properties that link a reply to this request."""
        return {
            PROPERTY_CORRELATION_ID: self.correlation_id,
            PROPERTY_REPLY_TO_CLIENT: client_id,
            PROPERTY_TTL: str(int(timeout_s * 1000)),
        }

    def wait(self, timeout_s: float) -> Message | None:
        """Return the reply; None if it does not arrive in time."""
        try:
            return self.replies.get(timeout=max(timeout_s, 0))
        except queue.Empty:
            return None


def reply_to(request: Message, body: bytes) -> Message:
    """Return the reply to a request for a producer to send.

    Parameters
    ----------
    request
        The message that the consumer received.
    body
        Body of the reply.

    Raises
    ------
    ClientError
        The message is not a request, or its broker did not set the cluster's name.
    """
    missing = [
        name
        for name in (PROPERTY_CLUSTER, PROPERTY_CORRELATION_ID, PROPERTY_REPLY_TO_CLIENT)
        if not request.properties.get(name)
    ]
    if missing:
        raise ClientError(
            f"there is no reply to message {request.unique_key} of topic {request.topic}: it has "
            f"no property {', '.join(missing)}"
        )
    return Message(
        request.properties[PROPERTY_CLUSTER] + _REPLY_TOPIC_SUFFIX,
        body,
        properties={PROPERTY_MESSAGE_TYPE: REPLY, **dict(_copied(request))},
    )


def _copied(request: Message) -> Iterator[tuple[str, str]]:
    for name in (PROPERTY_CORRELATION_ID, PROPERTY_REPLY_TO_CLIENT, PROPERTY_TTL):
        value = request.properties.get(name)
        if value is not None:
            yield name, value
