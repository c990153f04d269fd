# SPDX-License-Identifier: Apache-2.0
"""Offsets of a stream: how far each store was read, and proof that it is still the same log.

The form in which Spark stores them in its checkpoint and shows them in ``lastProgress``::

    {"version": 1,
     "selection": {"table": "messages", "topic": ["orders"]},
     "stores": {"/data/broker-a": {
       "offset": 5120,
       "first": {"offset": 0, "head": "5b1c…", "store_timestamp": 1700000000000},
       "last": {"offset": 4900, "head": "91ac…", "store_timestamp": 1700000000042}}}}

``offset`` is physical, exclusive. An entry has ``begin`` if the batch that ends here does not begin
where the previous one ended, that is for the first batch of a store and after a loss; this makes it
possible to repeat a batch exactly at any later time. ``from`` has the queue offsets at which the
stream started and that it has not passed yet. Offsets that only report (``latestOffset`` in
``lastProgress``) have ``waiting``: the number of messages that were not read yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmqsource.errors import SourceError, SourceOptionError
from rmqsource.options.option_values import INT64_MAX
from store_core.read.log_watch import LogMark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqsource.options.source_options import SourceOptions

VERSION = 1
DEFAULT_DIALECT = 5
QueueOffsets = dict[tuple[str, int], int]

STARTED, JOINED, RESUMED = "started", "joined", "resumed"
"""Why a batch does not begin where the previous one ended: the stream's start; a store added
later; a loss that ``failOnDataLoss=false`` skipped."""


class StreamOffsetError(SourceError):
    """An offset in the checkpoint is not one of this source, or is of a later release."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"offset of the stream: {self.reason}"


@dataclass(frozen=True)
class Begin:
    """Where a batch begins in a store, if not where the previous one ended."""

    offset: int
    why: str
    queue_offsets: QueueOffsets = field(default_factory=dict)


@dataclass(frozen=True)
class StoreOffset:
    """How far one store was read.

    Attributes
    ----------
    offset
        Physical offset, exclusive.
    begin
        Start of the batch that ends here; None if it is the end of the previous batch.
    """

    offset: int
    first: LogMark | None = None
    last: LogMark | None = None
    queue_offsets: QueueOffsets = field(default_factory=dict)
    begin: Begin | None = None
    waiting: int | None = None


@dataclass(frozen=True)
class StreamOffset:
    """How far all stores were read."""

    stores: Mapping[str, StoreOffset]
    selection: Mapping[str, Any]
    is_initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the offset as Spark stores it."""
        found: dict[str, Any] = {"version": VERSION, "selection": dict(self.selection)}
        if self.is_initial:
            found["initial"] = True
        found["stores"] = {path: _store_json(store) for path, store in self.stores.items()}
        return found

    @classmethod
    def from_json(cls, found: Any) -> StreamOffset:
        """Return the offset that Spark stored.

        Raises
        ------
        StreamOffsetError
            It is not an offset of this source, or is one of a later release.
        """
        if not isinstance(found, dict) or "version" not in found:
            raise StreamOffsetError(
                f"{_shown(found)} is not an offset of rocketmq-store; {_NEW_CHECKPOINT}"
            )
        if found["version"] != VERSION:
            raise StreamOffsetError(
                f"it has version {_shown(found['version'])}, this release reads version "
                f"{VERSION}; use the release that wrote the checkpoint, or a later one"
            )
        try:
            stores = {path: _store_of(entry) for path, entry in found["stores"].items()}
            selection = dict(found["selection"])
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise StreamOffsetError(
                f"{_shown(found)} cannot be read ({type(err).__name__}: {err}); {_NEW_CHECKPOINT}"
            ) from err
        return cls(stores, selection, found.get("initial") is True)


_NEW_CHECKPOINT = "was the checkpoint edited? Start with a new checkpointLocation"
_SHOWN = 200
_SELECTION = ("table", "topics", "topic_pattern", "queue_ids", "keys", "unique_keys", "tags")
_OPTION_NAMES = {
    "topics": "topic",
    "topic_pattern": "topicPattern",
    "queue_ids": "queueId",
    "unique_keys": "uniqueKeys",
}


def selection_of(options: SourceOptions) -> dict[str, Any]:
    """Return the options that decide which rows a batch has, by name, without defaults.

    ``mode`` and ``failOnDataLoss`` are not among them, because errors advise changing them.
    """
    found: dict[str, Any] = {}
    for name in _SELECTION:
        value = getattr(options, name)
        if value is not None:
            found[_OPTION_NAMES.get(name, name)] = list(value) if type(value) is tuple else value
    if options.sql_filter is not None:
        found["sqlFilter"] = options.sql_filter
        if options.sql_dialect != DEFAULT_DIALECT:
            found["sqlDialect"] = options.sql_dialect
    if options.where:
        found["where"] = [f"{c.column} {c.operator} {_values(c.values)}" for c in options.where]
    if options.access != "auto":
        found["access"] = options.access
    if options.body != "decoded":
        found["body"] = options.body
    return found


def _values(values: tuple[Any, ...]) -> str:
    return ", ".join(repr(value) for value in values)


def check_selection(offset: StreamOffset, selection: Mapping[str, Any]) -> None:
    """Raise `SourceOptionError` if a checkpoint was begun with other options."""
    for name in sorted({*offset.selection, *selection}):
        before, now = offset.selection.get(name), selection.get(name)
        if before != now:
            raise SourceOptionError(
                name,
                f"the checkpoint was begun with {_given(before)}, but the query has "
                f"{_given(now)}: earlier batches would have other contents. Restore the "
                "option, or start with a new checkpointLocation",
            )


def _given(value: Any) -> str:
    return "none" if value is None else _shown(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _store_json(store: StoreOffset) -> dict[str, Any]:
    found: dict[str, Any] = {"offset": store.offset}
    for name, mark in (("first", store.first), ("last", store.last)):
        if mark is not None:
            found[name] = mark._asdict()
    if store.queue_offsets:
        found["from"] = _by_topic(store.queue_offsets)
    if store.begin is not None:
        found["begin"] = {"offset": store.begin.offset, "why": store.begin.why}
        if store.begin.queue_offsets:
            found["begin"]["from"] = _by_topic(store.begin.queue_offsets)
    if store.waiting is not None:
        found["waiting"] = store.waiting
    return found


def _by_topic(offsets: QueueOffsets) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, queue_id), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(queue_id)] = offset
    return found


def _store_of(found: Mapping[str, Any]) -> StoreOffset:
    begin = found.get("begin")
    return StoreOffset(
        offset=_number(found["offset"]),
        first=_mark_of(found.get("first")),
        last=_mark_of(found.get("last")),
        queue_offsets=_queues_of(found.get("from", {})),
        begin=None
        if begin is None
        else Begin(_number(begin["offset"]), _why(begin["why"]), _queues_of(begin.get("from", {}))),
        waiting=None if found.get("waiting") is None else _number(found["waiting"]),
    )


def _mark_of(found: Mapping[str, Any] | None) -> LogMark | None:
    if found is None:
        return None
    head = found["head"]
    if not isinstance(head, str):
        raise TypeError(f"a head is a text; found {_shown(head)}")
    time_ms = found["store_timestamp"]
    if type(time_ms) is not int:
        raise TypeError(f"a store time is an integer; found {_shown(time_ms)}")
    return LogMark(_number(found["offset"]), head, time_ms)


def _queues_of(found: Mapping[str, Mapping[str, Any]]) -> QueueOffsets:
    return {
        (topic, int(queue_id)): _number(offset)
        for topic, queues in found.items()
        for queue_id, offset in queues.items()
    }


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= INT64_MAX:
        raise ValueError(f"an offset is an integer from 0 to 2**63 - 1; found {_shown(value)}")
    return value


def _why(value: Any) -> str:
    if value not in {STARTED, JOINED, RESUMED}:
        raise ValueError(
            f"a batch begins as {STARTED}, {JOINED} or {RESUMED}; found {_shown(value)}"
        )
    return str(value)
