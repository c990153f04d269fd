"""Calling a listener, and what its answer means."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

if TYPE_CHECKING:
    from rmqnet.client.message_queue import MessageQueue
    from store_core.message import Message

logger = logging.getLogger(__name__)

Listener = Callable[[list["Message"], "ConsumeContext"], Any]
"""Called with messages and a `ConsumeContext`.

Return None or True when they are done with, False or raise when they are to be tried again."""


class ConsumeContext:
    """What a listener may know, and say, of the messages that it gets.

    Attributes
    ----------
    message_queue : MessageQueue
        Where they were pulled from; that of a message which is tried again belongs to
        ``%RETRY%group``.
    ack_index : int or None
        Concurrent listeners: the index of the last message that is done with; those after it are
        tried again although the listener returns success. None: all are done with.
    delay_level_when_next_consume : int
        Concurrent listeners: when what failed is tried again: a delay level of the broker; 0: it
        chooses, longer from time to time; -1: never, it goes to the dead letters at once.
    suspend_current_queue_time_ms : int
        Orderly listeners: how long the queue rests if they fail; -1: as the consumer is set up.
    """

    # Of the class, as one is made for each call and hardly any listener sets them.
    ack_index: int | None = None
    delay_level_when_next_consume: int = 0
    suspend_current_queue_time_ms: int = -1

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue


class ListenerAnswer(NamedTuple):
    """What a listener made of its messages."""

    is_done: bool
    failure: BaseException | None = None
    """What it raised."""

    @property
    def failure_text(self) -> str:
        """Return the failure in words, as RocketMQ's tools show it; empty if it raised nothing."""
        return "" if self.failure is None else f"{type(self.failure).__name__}: {self.failure}"


_DONE, _LATER = ListenerAnswer(True), ListenerAnswer(False)


def ask_listener(
    listener: Listener, messages: list[Message], context: ConsumeContext
) -> ListenerAnswer:
    """Call a listener; whatever it raises or returns is taken for an answer."""
    try:
        answer = listener(messages[:], context)  # its own list: it may take messages out of it
    except BaseException as err:  # also of sys.exit(): the messages are still there
        logger.warning(
            "the listener failed with %d messages of %s, from offset %d on",
            len(messages),
            context.message_queue,
            messages[0].queue_offset,
            exc_info=True,
        )
        return ListenerAnswer(False, err)
    if answer is None or answer is True:
        return _DONE
    if answer is not False:
        logger.error(
            "the listener returned %r: None or True is expected for messages that are done with, "
            "False for those to be tried again, which these are now",
            answer,
        )
    return _LATER
