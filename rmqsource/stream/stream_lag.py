# SPDX-License-Identifier: Apache-2.0
"""The lag of a stream, store by store, from the progress of its query."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.stream.stream_offset import StreamOffset, StreamOffsetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqsource.stream.stream_offset import StoreOffset


class StoreLag(NamedTuple):
    """The lag of a query in one store after a batch; fields are None if not known.

    Lags refer to the stores as they were when the trigger began; a batch without limits has lag 0.

    Attributes
    ----------
    at
        When the batch's trigger began, in UTC, by the clock of Spark's driver.
    source
        Number of the source in the query, from 0.
    end_offset
        How far the log was read: physical offset, exclusive.
    store_timestamp
        Store time in ms of the last record that was read.
    ms_behind
        Store time of the last record that a batch may have, minus ``store_timestamp``; at least 0.
    """

    query_id: str
    query_name: str | None
    batch: int
    at: datetime
    source: int
    store: str
    end_offset: int
    store_timestamp: int | None
    messages_behind: int | None
    bytes_behind: int | None
    ms_behind: int | None


def store_lags(progress: Any) -> list[StoreLag]:
    """Return the lag of each store of a query's rocketmq-store sources."""
    # The JSON is the same in every release; the attributes of the sources are not.
    text = getattr(progress, "json", None)
    found = progress if text is None else json.loads(text)
    lags: list[StoreLag] = []
    for number, source in enumerate(found["sources"]):
        read, latest = (_offset_of(source.get(name)) for name in ("endOffset", "latestOffset"))
        if read is None:
            continue
        there: Mapping[str, StoreOffset] = latest.stores if latest is not None else {}
        for path, store in read.stores.items():
            behind = _behind(store, there.get(path))
            time_ms = store.last.store_timestamp if store.last else None
            lags.append(
                StoreLag(
                    str(found["id"]),
                    found["name"],
                    found["batchId"],
                    _moment(found["timestamp"]),
                    number,
                    path,
                    store.offset,
                    time_ms,
                    *behind,
                )
            )
    return lags


def _offset_of(found: Any) -> StreamOffset | None:
    """Return an offset of this source; None if it is of another source or absent."""
    try:
        return StreamOffset.from_json(json.loads(found) if isinstance(found, str) else found)
    except (StreamOffsetError, ValueError):  # ValueError: the text is not JSON
        return None


def _behind(
    read: StoreOffset, latest: StoreOffset | None
) -> tuple[int | None, int | None, int | None]:
    """Return the messages, bytes and ms between the offset read and the store's end."""
    if latest is None:
        return None, None, None
    size = max(latest.offset - read.offset, 0)
    if size == 0:
        return 0, 0, 0
    if read.last is None or latest.last is None:
        return latest.waiting, size, None
    time_ms = latest.last.store_timestamp - read.last.store_timestamp
    return latest.waiting, size, max(time_ms, 0)


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
