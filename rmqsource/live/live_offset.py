# SPDX-License-Identifier: Apache-2.0
"""Offsets of a stream of a cluster: how far each queue was read.

The form in which Spark stores them in its checkpoint and shows them in ``lastProgress``::

    {"version": 1,
     "selection": {"topic": ["orders"]},
     "queues": {"orders": {"broker-a": {"0": 120, "1": 118}}},
     "begin": {"orders": {"broker-a": {"0": 0, "1": 0}}}}

An offset is that of the first message not yet read. ``begin`` has the first offsets of queues that
no earlier batch had: the queues of the first batch, and new ones. ``resumed`` has those of queues
that lost messages. This makes it possible to repeat a batch exactly at any later time. Offsets that
only report (``latestOffset`` in ``lastProgress``) have ``waiting``: the number of unread messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmqsource.live.live_queues import LiveQueue
from rmqsource.options.option_values import INT64_MAX
from rmqsource.stream.stream_offset import StreamOffsetError, selection_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqsource.live.live_options import LiveOptions

VERSION = 1
_SHOWN = 200
_NEW_CHECKPOINT = "was the checkpoint edited? Start with a new checkpointLocation"

LiveQueueOffsets = dict[LiveQueue, int]


@dataclass(frozen=True)
class LiveOffset:
    """How far all queues were read."""

    queues: Mapping[LiveQueue, int]
    selection: Mapping[str, Any]
    begin: Mapping[LiveQueue, int] = field(default_factory=dict)
    resumed: Mapping[LiveQueue, int] = field(default_factory=dict)
    is_initial: bool = False
    waiting: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the offset as Spark stores it."""
        found: dict[str, Any] = {"version": VERSION, "selection": dict(self.selection)}
        if self.is_initial:
            found["initial"] = True
        found["queues"] = _nested(self.queues)
        for name, offsets in (("begin", self.begin), ("resumed", self.resumed)):
            if offsets:
                found[name] = _nested(offsets)
        if self.waiting is not None:
            found["waiting"] = self.waiting
        return found

    @classmethod
    def from_json(cls, found: Any) -> LiveOffset:
        """Return the offset that Spark stored.

        Raises
        ------
        StreamOffsetError
            It is not an offset of this source, or is one of a later release.
        """
        if not isinstance(found, dict) or "version" not in found or "stores" in found:
            raise StreamOffsetError(
                f"{_shown(found)} is not an offset of rocketmq; {_NEW_CHECKPOINT}"
            )
        if found["version"] != VERSION:
            raise StreamOffsetError(
                f"it has version {_shown(found['version'])}, this release reads version "
                f"{VERSION}; use the release that wrote the checkpoint, or a later one"
            )
        try:
            queues = _flat(found["queues"])
            begin, resumed = (_flat(found.get(name, {})) for name in ("begin", "resumed"))
            selection = dict(found["selection"])
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise StreamOffsetError(
                f"{_shown(found)} cannot be read ({type(err).__name__}: {err}); {_NEW_CHECKPOINT}"
            ) from err
        return cls(queues, selection, begin, resumed, found.get("initial") is True)


def live_selection(options: LiveOptions) -> dict[str, Any]:
    """Return the options that decide which rows a batch has, by name, without defaults."""
    found = selection_of(options.reading)
    del found["table"]
    return found


def _nested(offsets: Mapping[LiveQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    found: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in sorted(offsets.items()):
        brokers = found.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return found


def _flat(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> LiveQueueOffsets:
    return {
        LiveQueue(topic, broker_name, int(queue_id)): _number(offset)
        for topic, brokers in found.items()
        for broker_name, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= INT64_MAX:
        raise ValueError(f"an offset is an integer from 0 to 2**63 - 1; found {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
