# SPDX-License-Identifier: Apache-2.0
"""The filters of consumers that a broker stores in ``config/consumerFilter.json``.

Source: RocketMQ ``ConsumerFilterManager``, ``ConsumerFilterData`` (release 5.3.3).
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store_core.config.config_files import load_config_file, read_json_file
from store_core.config.config_writing import set_aside
from store_core.config.lenient_json import (
    fastjson_text,
    json_field,
    json_number_or_default,
    json_object,
    json_whole_number,
)
from store_core.errors import StoreFormatError
from store_core.files.file_writing import make_directory, write_error
from store_core.files.store_directory import StoreDirectory
from store_core.layout import CONFIG_DIR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from store_core.config.config_writing import Replace

logger = logging.getLogger(__name__)

CONSUMER_FILTER_FILE = "consumerFilter.json"
SQL92 = "SQL92"
_TABLE = "filterDataByTopic"
_INT_BITS = 32


@dataclass(frozen=True)
class ConsumerFilterData:
    """The filter of one consumer group of one topic (RocketMQ ``ConsumerFilterData``).

    Attributes
    ----------
    expression, expression_type
        The filter; ``SQL92`` is the only type that brokers store here.
    born_timestamp, dead_timestamp
        Since when the expression is known, and since when the group has no consumer (0 if it has
        one); ms since the epoch.
    bit_positions
        Bits of the group; None if it has none.
    """

    topic: str
    consumer_group: str
    expression: str
    expression_type: str = SQL92
    born_timestamp: int = 0
    dead_timestamp: int = 0
    client_version: int = 0
    bit_count: int = 0
    bit_positions: tuple[int, ...] | None = None

    @property
    def is_dead(self) -> bool:
        """Whether the group has no consumer."""
        return self.dead_timestamp >= self.born_timestamp


def load_consumer_filters(directory: StoreDirectory) -> tuple[ConsumerFilterData, ...] | None:
    """Return the filters in the order of the file; None if there is no such file.

    A file that cannot be read counts as missing, with a warning, if its ``.bak`` cannot either.

    Raises
    ------
    StoreReadError
        The store cannot be read.
    """
    return load_config_file(directory, CONSUMER_FILTER_FILE, parse_consumer_filters)


def save_consumer_filters(
    root: str, filters: Iterable[ConsumerFilterData], replace: Replace
) -> None:
    """Write the file in the form that a broker reads, replacing all its content.

    An unreadable file is renamed before (`set_aside`).

    Raises
    ------
    StoreWriteError
        It cannot be written.
    """
    path = Path(root, CONFIG_DIR, CONSUMER_FILTER_FILE)
    topics: dict[str, Any] = {}
    for data in filters:
        topic = topics.setdefault(data.topic, {"groupFilterData": {}, "topic": data.topic})
        topic["groupFilterData"][data.consumer_group] = _fields(data)
    text = json.dumps({_TABLE: topics}, indent="\t", separators=(",", ":"), sort_keys=True)
    _set_aside_unreadable(root, path)
    try:
        make_directory(str(path.parent))
        replace(str(path), text.encode())
    except OSError as err:
        raise write_error(err, str(path)) from err


def _set_aside_unreadable(root: str, path: Path) -> None:
    try:
        data = read_json_file(StoreDirectory(root), str(path))
        if data is not None:
            parse_consumer_filters(data)
    except (StoreFormatError, ValueError) as err:
        logger.warning(
            "%s; it is rewritten, and the old file is kept as %s", err, set_aside(str(path))
        )


def _fields(data: ConsumerFilterData) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "bornTime": data.born_timestamp,
        "clientVersion": data.client_version,
        "consumerGroup": data.consumer_group,
        "dead": data.is_dead,
        "deadTime": data.dead_timestamp,
        "expression": data.expression,
        "expressionType": data.expression_type,
        "topic": data.topic,
    }
    if data.bit_positions is not None:
        positions = list(data.bit_positions)
        fields["bloomFilterData"] = {"bitNum": data.bit_count, "bitPos": positions}
    return fields


def parse_consumer_filters(data: dict[str, Any]) -> tuple[ConsumerFilterData, ...]:
    """Return the filters of field ``filterDataByTopic``; ValueError names what is wrong."""
    found = []
    for topic, item in _entries(json_field(data, _TABLE), _TABLE):
        place = f"{_TABLE}.{topic}"
        groups = f"{place}.groupFilterData"
        for group, entry in _entries(json_field(item, "groupFilterData"), groups):
            found.append(_filter(topic, group, entry, f"{place}.{group}"))
    return tuple(found)


def _entries(table: Any, place: str) -> Iterator[tuple[str, dict[Any, Any]]]:
    for name, entry in json_object(table, place).items():
        if entry is None:
            raise ValueError(f"{place}.{name}: an object was expected, not null")
        yield str(name), json_object(entry, f"{place}.{name}")


def _filter(topic: str, group: str, fields: dict[Any, Any], place: str) -> ConsumerFilterData:
    def number(name: str, values: dict[Any, Any], bits: int = 64) -> int:
        return json_number_or_default(json_field(values, name), f"{place}.{name}", 0, bits)

    def text(name: str) -> str:
        value = json_field(fields, name)
        return "" if value is None else fastjson_text(value)

    bloom = json_object(json_field(fields, "bloomFilterData") or None, f"{place}.bloomFilterData")
    positions = json_field(bloom, "bitPos")
    if positions is not None and not isinstance(positions, list):
        raise ValueError(f"{place}.bitPos: a list was expected, not {positions!r:.80}")
    return ConsumerFilterData(
        topic=topic,
        consumer_group=group,
        expression=text("expression"),
        expression_type=text("expressionType") or SQL92,
        born_timestamp=number("bornTime", fields),
        dead_timestamp=number("deadTime", fields),
        client_version=number("clientVersion", fields),
        bit_count=number("bitNum", bloom, _INT_BITS),
        bit_positions=None
        if positions is None
        else tuple(json_whole_number(bit, f"{place}.bitPos", _INT_BITS) for bit in positions),
    )
