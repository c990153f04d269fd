# SPDX-License-Identifier: Apache-2.0
"""The plan of a write that the driver makes once and passes to every task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqsource.sink.columns import SinkColumns
    from rmqsource.sink.options import SinkOptions


@dataclass(frozen=True)
class SinkPlan:
    """The plan of one write; plain values only, so that it can be pickled.

    Attributes
    ----------
    store_host
        8 or 20 bytes; stored in every record.
    delay_levels_ms
        Delay of each level, level 1 first.
    property_crc
        Records end with ``__CRC32#`` (``enabledAppendPropCRC``).
    tag_index
        Tags are indexed, as brokers from 5.4.0 on do (``tagIndexEnable``).
    """

    options: SinkOptions
    columns: SinkColumns
    job_directory: str
    store_host: bytes
    segment_bytes: int
    delay_levels_ms: tuple[int, ...] = ()
    topic_queues: dict[str, int] = field(default_factory=dict)
    batch_topics: frozenset[str] = frozenset()
    property_crc: bool = False
    tag_index: bool = False
    by_broker: bool = False
