# SPDX-License-Identifier: Apache-2.0
"""The filters of consumer groups that a store knows, which filter bitmaps are made from.

Source: RocketMQ ``ConsumerFilterManager`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from store_core.config.consumer_filter_file import (
    SQL92,
    ConsumerFilterData,
    load_consumer_filters,
)
from store_core.errors import FilterSyntaxError
from store_core.filter.bloom_filter import BloomFilter
from store_core.filter.sql_filter import SqlFilter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import StoreDirectory

    OnChange = Callable[[tuple[ConsumerFilterData, ...]], None]

logger = logging.getLogger(__name__)

_ALIVE_MS = 30_000
"""When the file is loaded, consumers alive when it was written count as dead for this long."""
_MOST_REFUSED = 1000
CLEAN_TIME_SPAN_MS = 24 * 3600 * 1000


class RegisteredFilter(NamedTuple):
    """A consumer group's filter, ready for use.

    Attributes
    ----------
    compiled
        None if the expression is not valid SQL92; then it filters nothing.
    """

    data: ConsumerFilterData
    compiled: SqlFilter | None


class ConsumerFilterManager:
    """The filters of all groups by topic; for any number of threads.

    Parameters
    ----------
    clock
        Returns ms since the epoch.
    """

    def __init__(
        self,
        bloom: BloomFilter,
        clock: Callable[[], int],
        clean_time_span_ms: int = CLEAN_TIME_SPAN_MS,
        on_change: OnChange | None = None,
    ) -> None:
        self.bloom = bloom
        self._clock, self._clean_time_span_ms = clock, clean_time_span_ms
        self._on_change = on_change
        self._changing = threading.RLock()
        self._is_saving_later = self._is_unsaved = False
        self._by_topic: dict[str, dict[str, RegisteredFilter]] = {}
        self._saved: dict[str, dict[str, RegisteredFilter]] = {}
        self._refused: dict[tuple[str, str, str], None] = {}

    def load(self, filters: Iterable[ConsumerFilterData]) -> bool:
        """Replace the filters by a file's; return False, and change nothing, if bits do not fit.

        As no consumer is connected yet, groups that were alive count as dead since 30 s ago, or
        since the filter was registered if that is later.
        """
        now = self._clock()
        found: dict[str, dict[str, RegisteredFilter]] = {}
        for data in filters:
            if data.bit_positions is None or not self.bloom.fits(
                data.bit_count, data.bit_positions
            ):
                logger.warning(
                    "the saved filters of consumers are ignored: the bits of group %s do not fit "
                    "a bloom filter of %d bits",
                    data.consumer_group,
                    self.bloom.bits,
                )
                return False
            dead = data.dead_timestamp or max(now - _ALIVE_MS, data.born_timestamp)
            entry = _registered(replace(data, dead_timestamp=dead))
            found.setdefault(data.topic, {})[data.consumer_group] = entry
        with self._changing:
            self._by_topic, self._saved = found, dict(found)
        return True

    def register(
        self, topic: str, group: str, expression: str, *, client_version: int | None = None
    ) -> bool:
        """Register the SQL92 filter of a group for a topic; return whether it is accepted.

        A subscription that is not newer than the known one changes nothing, except that one of the
        same version revives a dead group. An expression that does not parse is refused, and the
        group's known filter is removed.

        Parameters
        ----------
        client_version
            The version of the subscription, larger for later ones; the current time if None.

        Raises
        ------
        StoreWriteError
            The filters cannot be saved.
        """
        if not expression:
            return False
        with self._changing:
            now = self._clock()
            version = now if client_version is None else client_version
            known, refused = self.get(topic, group), (topic, group, expression)
            if known is None and refused in self._refused:  # repeated with each heartbeat
                return False
            if known is not None and version <= known.data.client_version:
                if version < known.data.client_version or not known.data.is_dead:
                    return False
                self._put(known, dead_timestamp=0)
                return True
            if known is not None and self._is_of(known.data, expression):
                self._put(known, dead_timestamp=0, client_version=version)
                return True
            data = ConsumerFilterData(
                topic,
                group,
                expression,
                born_timestamp=now,
                client_version=version,
                bit_count=self.bloom.bits,
                bit_positions=self.bloom.positions(group, topic),
            )
            new = _registered(data)
            if new.compiled is None:
                self._remove(known)
                self._refuse(refused)
                return False
            self._put(new)
            return True

    def _refuse(self, subscription: tuple[str, str, str]) -> None:
        """Remember a filter that does not parse; drop the oldest if there are too many."""
        if len(self._refused) >= _MOST_REFUSED:
            self._refused.pop(next(iter(self._refused)))
        self._refused[subscription] = None

    def unregister(self, group: str, *, kept_topics: Collection[str] = ()) -> None:
        """Note that a group has no connected consumer any more; its filters stay for a day.

        Raises
        ------
        StoreWriteError
            The filters cannot be saved.
        """
        with self._changing:
            for topic in tuple(self._by_topic):
                if topic in kept_topics:
                    continue
                known = self.get(topic, group)
                if known is not None and not known.data.is_dead:
                    self._put(known, dead_timestamp=self._clock())

    @contextmanager
    def saved_together(self) -> Iterator[None]:
        """Save the changes of a block once, at its end; other threads cannot change anything then.

        Raises
        ------
        StoreWriteError
            The filters cannot be saved.
        """
        with self._changing:
            self._is_saving_later = True
            try:
                yield
            finally:
                self._is_saving_later = False
                if self._is_unsaved:
                    self._changed()

    def get(self, topic: str, group: str) -> RegisteredFilter | None:
        """Return the filter of a group for a topic; None if it has none."""
        return self._by_topic.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> tuple[RegisteredFilter, ...]:
        """Return the filters that a topic's bitmaps cover, including those of dead groups.

        While a change is being saved, a group also has its previous filter: a bitmap gets the
        group's bits if either is true, so none lacks them, whichever a crash leaves in the file.
        """
        current, saved = self._by_topic.get(topic, {}), self._saved.get(topic, {})
        before = (
            entry
            for group, entry in saved.items()
            if group not in current or current[group].compiled != entry.compiled
        )
        return (*current.values(), *before)

    def all(self) -> tuple[ConsumerFilterData, ...]:
        """Return all filters, after removing those of groups that have been dead for too long."""
        oldest = self._clock() - self._clean_time_span_ms
        with self._changing:
            for groups in tuple(self._by_topic.values()):
                for known in tuple(groups.values()):
                    if known.data.is_dead and known.data.dead_timestamp <= oldest:
                        self._without(known)
            return tuple(k.data for groups in self._by_topic.values() for k in groups.values())

    def _is_of(self, data: ConsumerFilterData, expression: str) -> bool:
        bits = self.bloom.positions(data.consumer_group, data.topic)
        return (data.expression, data.expression_type, data.bit_positions) == (
            expression,
            SQL92,
            bits,
        )

    def _put(self, entry: RegisteredFilter, **changes: Any) -> None:
        data = replace(entry.data, **changes)
        groups = self._by_topic.get(data.topic, {})
        # A new dictionary, as dispatch may be iterating over the old one.
        self._by_topic[data.topic] = {**groups, data.consumer_group: entry._replace(data=data)}
        self._changed()

    def _remove(self, entry: RegisteredFilter | None) -> None:
        if entry is not None:
            self._without(entry)
            self._changed()

    def _without(self, entry: RegisteredFilter) -> None:
        topic, group = entry.data.topic, entry.data.consumer_group
        left = {name: known for name, known in self._by_topic[topic].items() if name != group}
        if left:
            self._by_topic[topic] = left
        else:
            del self._by_topic[topic]

    def _changed(self) -> None:
        self._is_unsaved = True
        if self._is_saving_later:
            return
        if self._on_change is not None:
            self._on_change(self.all())
        self._saved = dict(self._by_topic)
        self._is_unsaved = False


def open_consumer_filters(
    directory: StoreDirectory,
    config: MessageStoreConfig,
    clock: Callable[[], int],
    on_change: OnChange | None = None,
) -> ConsumerFilterManager:
    """Return the filters in ``config/consumerFilter.json`` of a store.

    An unreadable file counts as missing, with a warning, if its ``.bak`` is unreadable too.

    Raises
    ------
    StoreReadError
        The store cannot be read.
    """
    bloom = BloomFilter(
        config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
    )
    manager = ConsumerFilterManager(bloom, clock, config.filter_data_clean_time_span, on_change)
    manager.load(load_consumer_filters(directory) or ())
    return manager


def _registered(data: ConsumerFilterData) -> RegisteredFilter:
    return RegisteredFilter(data, _compiled(data))


def _compiled(data: ConsumerFilterData) -> SqlFilter | None:
    try:
        if data.expression_type != SQL92:
            return None
        return SqlFilter.without_warning(data.expression)
    except FilterSyntaxError as err:
        logger.warning(
            "cannot parse the filter of group %s for topic %s: %s",
            data.consumer_group,
            data.topic,
            err,
        )
        return None
