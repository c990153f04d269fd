"""Settings of a store, by RocketMQ's keys in snake_case, and the broker's properties files."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store_core.errors import StoreConfigError, StoreReadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT_MAX_HASH_SLOT_NUM = 5_000_000
DEFAULT_MAX_INDEX_NUM = 20_000_000
_INT_MAX = 2**31 - 1
_DELAY_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY_LEVEL = re.compile(r"([+-]?[0-9]+)([smhd])", re.ASCII)


@dataclass(frozen=True)
class MessageStoreConfig:
    """What reading a store needs to know (RocketMQ ``MessageStoreConfig``, release 5.3.3).

    Defaults are RocketMQ's, except that a size of files is None: found from the files. Numbers
    are positive and fit a Java int.

    Raises
    ------
    StoreConfigError
        A value is out of bounds; the text names RocketMQ's key.
    """

    store_path_root_dir: str = ""
    store_path_commit_log: str | None = None
    """Directories of the commit log, separated by commas; None: ``commitlog`` below the root."""
    read_only_commit_log_store_paths: str | None = None
    """More directories of the commit log, which get no new files."""
    mapped_file_size_commit_log: int | None = None
    """Bytes of a commit log segment."""
    mapped_file_size_consume_queue: int | None = None
    """Bytes of a consume queue file; rounded up to whole units of 20 bytes."""
    mapper_file_size_batch_consume_queue: int | None = None
    """Bytes of a batch consume queue file (RocketMQ spells the key so)."""
    mapped_file_size_consume_queue_ext: int | None = None
    """Bytes of a consume queue extension file."""
    max_hash_slot_num: int | None = None
    """Hash slots of an index file."""
    max_index_num: int | None = None
    """Entries of an index file, the unused first one included."""
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    """Delay of level 1, 2, …: numbers with unit s, m, h or d, separated by single spaces."""
    max_msgs_num_batch: int = 64
    """Most messages that one index query returns."""
    default_query_max_num: int = 32
    """Most messages that a query by unique key returns."""
    max_transfer_bytes_on_message_in_memory: int = 262_144
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 65_536
    max_transfer_count_on_message_in_disk: int = 8
    max_filter_message_size: int = 16_000
    """Bytes of queue units that one ``get_message`` inspects."""
    access_message_in_memory_max_ratio: int = 40
    """Percent of the memory in which the newest messages are taken to be."""
    travel_cq_file_num_when_get_message: int = 1
    """Consume queue files that one ``get_message`` looks into."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and str(field.type).startswith("int"):
                _check_int(camel_case(field.name), value)
        if self.access_message_in_memory_max_ratio > 100:  # noqa: PLR2004 (percent)
            raise StoreConfigError(
                f"accessMessageInMemoryMaxRatio={self.access_message_in_memory_max_ratio}: "
                "a percentage is at most 100"
            )
        _ = self.delay_levels_ms

    @cached_property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Delay of each level in ms; level 1 comes first."""
        return _parse_delay_levels(self.message_delay_level)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> MessageStoreConfig:
        """Make a configuration of RocketMQ's keys and their texts.

        Keys of a broker's file that reading has no use for are ignored.

        Raises
        ------
        StoreConfigError
            The text of a number is none, or a value is out of bounds.
        """
        values: dict[str, Any] = {}
        for key, name in KEYS.items():
            text = properties.get(key)
            if text is not None:
                values[name] = _parse_int(key, text) if name in _INT_FIELDS else text
        return cls(**values)


def camel_case(name: str) -> str:
    """Return RocketMQ's key of a field."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


KEYS: dict[str, str] = {camel_case(f.name): f.name for f in fields(MessageStoreConfig)}
"""RocketMQ's key -> field of `MessageStoreConfig`."""
_INT_FIELDS = frozenset(f.name for f in fields(MessageStoreConfig) if str(f.type)[:3] == "int")


def config_key_names() -> tuple[str, ...]:
    """Return RocketMQ's keys of all settings."""
    return tuple(KEYS)


def _check_int(key: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise StoreConfigError(f"{key}={value!r}: a whole number is needed")
    if not 1 <= value <= _INT_MAX:
        raise StoreConfigError(f"{key}={value}: must be 1 to {_INT_MAX}")


def _parse_int(key: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text.strip(), re.ASCII):
        raise StoreConfigError(f"{key}={text!r}: a whole number is needed")
    return int(text)


def _parse_delay_levels(text: str) -> tuple[int, ...]:
    # Source: ScheduleMessageService.parseDelayLevel; Java's split drops empty words at the end.
    levels = []
    for word in text.rstrip(" ").split(" "):
        level = _DELAY_LEVEL.fullmatch(word)
        if level is None:
            raise StoreConfigError(
                f"messageDelayLevel={text!r}: {word!r} is not a number with unit s, m, h or d"
            )
        levels.append(int(level.group(1)) * _DELAY_UNITS_MS[level.group(2)])
    return tuple(levels)


def load_broker_config(path: str) -> dict[str, str]:
    r"""Read a Java ``.properties`` file, as ``-c broker.conf`` of a broker.

    Comments begin with ``#`` or ``!``; ``=``, ``:`` or white space separate; a backslash at the
    end continues a line; ``\uXXXX`` escapes. The last of repeated keys wins. The file is taken as
    UTF-8, or as Latin-1 where it is no UTF-8.

    Raises
    ------
    StoreReadError
        The file cannot be read.
    StoreConfigError
        A ``\u`` escape is malformed.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as err:
        raise StoreReadError(err.strerror or str(err), path) from err
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return dict(_split_property(line, path) for line in _logical_lines(text))


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for natural in re.split(r"\r\n|\n|\r", text):
        line = natural.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _split_property(line: str, path: str) -> tuple[str, str]:
    parts = _PROPERTY.fullmatch(line)
    key, value = parts.groups() if parts else (line, "")

    def plain(found: re.Match[str]) -> str:
        code = found.group(1)
        if code == "u":
            raise StoreConfigError(f"{path}: malformed \\u escape in {line!r}")
        return chr(int(code[1:], 16)) if len(code) > 1 else _CONTROLS.get(code, code)

    return _ESCAPE.sub(plain, key), _ESCAPE.sub(plain, value)
