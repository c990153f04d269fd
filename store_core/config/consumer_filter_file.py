"""The filters of consumers that a broker keeps in ``config/consumerFilter.json``.

Source: RocketMQ ``ConsumerFilterManager``, ``ConsumerFilterData`` (release 5.3.3).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store_core.config.config_files import load_config_file
from store_core.config.lenient_json import json_object, json_whole_number
from store_core.files.file_writing import make_directory, write_error
from store_core.layout.store_paths import CONFIG_DIR

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.config.config_writing import Replace
    from store_core.files.store_directory import StoreDirectory

CONSUMER_FILTER_FILE = "consumerFilter.json"
SQL92 = "SQL92"
_TABLE = "filterDataByTopic"


@dataclass(frozen=True)
class ConsumerFilterData:
    """The filter of one consumer group of one topic (RocketMQ ``ConsumerFilterData``).

    Attributes
    ----------
    topic, consumer_group
        Who filters what.
    expression, expression_type
        The filter; ``SQL92`` is the only type that brokers keep here.
    born_timestamp, dead_timestamp
        Since when the expression is known, and since when no consumer of the group is there (0 if
        one is); ms since the epoch.
    client_version
        The consumer's version of its subscription; later ones are larger.
    bit_count
        Bits of a bitmap that the positions are for.
    bit_positions
        Bits of the group; None: it has none.
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
        """Whether no consumer of the group is there."""
        return self.dead_timestamp >= self.born_timestamp


def load_consumer_filters(directory: StoreDirectory) -> tuple[ConsumerFilterData, ...] | None:
    """Return what the file says, in its order; None when there is no such file.

    Raises
    ------
    StoreFormatError
        The file is neither empty nor readable, and no ``.bak`` is readable either.
    StoreReadError
        It may not be read.
    """
    return load_config_file(directory, CONSUMER_FILTER_FILE, _filters)


def save_consumer_filters(
    root: str, filters: Iterable[ConsumerFilterData], replace: Replace
) -> None:
    """Write the file anew, as a broker reads it; all that it held goes.

    Parameters
    ----------
    root
        Of the store.
    filters
        What the file is to say.
    replace
        Puts the file in place, whole or not at all.

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
    try:
        make_directory(str(path.parent))
        replace(str(path), text.encode())
    except OSError as err:
        raise write_error(err, str(path)) from err


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


def _filters(data: dict[str, Any]) -> tuple[ConsumerFilterData, ...]:
    found = []
    for topic, item in json_object(data.get(_TABLE), _TABLE).items():
        place = f"{_TABLE}.{topic}"
        groups = json_object(item, place).get("groupFilterData")
        for group, entry in json_object(groups, f"{place}.groupFilterData").items():
            if entry is not None:
                found.append(_filter(str(topic), str(group), entry, f"{place}.{group}"))
    return tuple(found)


def _filter(topic: str, group: str, entry: Any, place: str) -> ConsumerFilterData:
    fields = json_object(entry, place)

    def number(name: str) -> int:
        return json_whole_number(fields.get(name, 0), f"{place}.{name}")

    bloom = json_object(fields.get("bloomFilterData"), f"{place}.bloomFilterData")
    positions = bloom.get("bitPos")
    if positions is not None and not isinstance(positions, list):
        raise ValueError(f"{place}.bitPos: a list was expected, not {positions!r:.80}")
    return ConsumerFilterData(
        topic=topic,
        consumer_group=group,
        expression=str(fields.get("expression") or ""),
        expression_type=str(fields.get("expressionType") or SQL92),
        born_timestamp=number("bornTime"),
        dead_timestamp=number("deadTime"),
        client_version=number("clientVersion"),
        bit_count=json_whole_number(bloom.get("bitNum", 0), f"{place}.bitNum"),
        bit_positions=None
        if positions is None
        else tuple(json_whole_number(bit, f"{place}.bitPos") for bit in positions),
    )
