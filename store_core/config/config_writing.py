# SPDX-License-Identifier: Apache-2.0
"""Write the broker's files below ``config``: topics and offsets, merged into existing files.

Source: RocketMQ ``ConfigManager.persist``, ``TopicConfigSerializeWrapper``,
``DelayOffsetSerializeWrapper`` (release 5.3.3).
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from store_core.config.config_files import (
    TopicConfig,
    config_json,
    parse_consumer_offsets,
    parse_delay_offsets,
    parse_topic_configs,
)
from store_core.config.data_version import parse_data_version
from store_core.config.lenient_json import decode_lenient_json, json_number_or_default, json_object
from store_core.errors import StoreFormatError
from store_core.files.byte_source import read_file
from store_core.files.file_writing import make_directory, write_error
from store_core.layout import CONFIG_DIR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

logger = logging.getLogger(__name__)
Replace = Callable[[str, bytes], None]
"""Replaces a file, wholly or not at all."""
_QUEUES = 16  # of a topic whose entry has no number
_STYLE: dict[str, Any] = {"indent": "\t", "separators": (",", ":"), "sort_keys": True}
_TOPICS, _DELAYS, _CONSUMERS = "topics.json", "delayOffset.json", "consumerOffset.json"
_CHECKS: dict[str, Callable[[dict[Any, Any]], Any]] = {
    _TOPICS: parse_topic_configs,
    _DELAYS: parse_delay_offsets,
    _CONSUMERS: parse_consumer_offsets,
}


def merge_topics(root: str, queues: Mapping[str, int], now_ms: int, replace: Replace) -> bool:
    """Make topics known to the broker that opens the store next; return whether the file changed.

    A missing topic is added, with so many queues to read and to write. For an existing topic only
    the number of queues to read grows, if it is too small: no one would consume messages in queues
    beyond it. Everything else is unchanged.

    Parameters
    ----------
    queues
        Topic -> queues that contain messages, or may.
    now_ms
        Milliseconds since the epoch.

    Raises
    ------
    StoreFormatError
        The file is not what a broker writes; one that cannot be read at all is renamed instead.
    """
    path = Path(root, CONFIG_DIR, _TOPICS)
    data, source = _load_or_set_aside(path)
    with _broker_file(source):
        changed = _add_topics(data, queues)
        _count_version(data, now_ms)
    if changed:
        _save(path, data, replace)
    return changed


def merge_delay_offsets(
    root: str, offsets: Mapping[int, tuple[int, int]], now_ms: int, replace: Replace
) -> bool:
    """Record the next delayed messages to deliver; return whether the file changed.

    Without the file a broker delivers again all messages that ever were delayed.

    Parameters
    ----------
    offsets
        Delay level -> end of its queue, and the next queue offset to deliver. A level whose
        recorded offset is not that end has messages that wait: it is unchanged.

    Raises
    ------
    StoreFormatError
        The existing file is not what a broker writes.
    """
    path = Path(root, CONFIG_DIR, _DELAYS)
    try:
        data, source = _load(path)
    except StoreFormatError:
        if not offsets:
            return False  # there is nothing to record
        raise
    with _broker_file(source):
        before = _levels(data)
    after = dict(before)
    for level, (end, wanted) in offsets.items():
        if before.get(str(level), 0) == end:
            after[str(level)] = wanted
        else:
            after.setdefault(str(level), 0)
    if after == before and data.get("dataVersion"):
        return False
    with _broker_file(source):
        _count_version(data, now_ms)
    data["offsetTable"] = after
    _save(path, data, replace)
    return True


def write_delay_offsets(
    root: str, offsets: Mapping[int, int], now_ms: int, replace: Replace
) -> None:
    """Record the next delayed messages to deliver, in the form of the existing file.

    A file of 4.x has no version; a new file is written as 5.x does. This is for code that delivers
    messages; code that adds them calls `merge_delay_offsets`.

    Parameters
    ----------
    offsets
        Delay level -> next queue offset to deliver; other levels in the file are unchanged.

    Raises
    ------
    StoreFormatError
        The existing file is not what a broker writes.
    """
    data, levels, is_sound = _next_delay_offsets(Path(root, CONFIG_DIR, _DELAYS), now_ms)
    levels.update(offsets)
    data["offsetTable"] = dict(sorted(levels.items()))
    save_config_file(root, _DELAYS, data, replace, is_sound=is_sound)


def save_config_file(
    root: str, name: str, data: dict[str, Any], replace: Replace, *, is_sound: bool
) -> None:
    """Write a file below ``config`` of a store; see `save_config_at`."""
    save_config_at(config_path(root, name), data, replace, is_sound=is_sound)


def config_path(root: str, name: str) -> str:
    """Return the path of a store's configuration file."""
    return str(Path(root, CONFIG_DIR, name))


def save_config_at(place: str, data: dict[str, Any], replace: Replace, *, is_sound: bool) -> None:
    """Write a file in a broker's layout; with ``is_sound``, the old content becomes ``.bak``.

    Whenever the process dies, a broker reads the old content or the new one.

    Raises
    ------
    StoreWriteError
        It cannot be written.
    StoreFormatError
        The content is nested too deeply; the file is unchanged.
    """
    path = Path(place)
    try:
        text = to_fastjson({key: data[key] for key in sorted(data)})
    except RecursionError as err:
        raise StoreFormatError("nested too deeply to be written", str(path)) from err
    try:
        make_directory(str(path.parent))
        if is_sound and path.exists():
            replace(f"{path}.bak", read_file(str(path)))
        replace(str(path), text.encode())
    except OSError as err:
        raise write_error(err, str(path)) from err


def require_delay_offsets(root: str) -> None:
    """Raise if `write_delay_offsets` would fail on the existing file.

    Called before a delivery: messages whose delivery cannot be recorded are delivered again.

    Raises
    ------
    StoreFormatError
        The existing file is not what a broker writes.
    """
    _next_delay_offsets(Path(root, CONFIG_DIR, _DELAYS), 0)


def _next_delay_offsets(path: Path, now_ms: int) -> tuple[dict[str, Any], dict[int, int], bool]:
    """Return the file's next content, its offsets, and whether they are not from the backup."""
    data, source = _load(path)
    is_sound = bool(data) and source == path
    with _broker_file(source):
        levels = {int(level): at for level, at in _levels(data).items()}
        if not data or "dataVersion" in data:
            _count_version(data, now_ms)
    return data, levels, is_sound


def merge_consumer_offsets(
    root: str,
    offsets: Mapping[tuple[str, str], Mapping[int, int]],
    now_ms: int,
    replace: Replace,
) -> bool:
    """Record how far groups are, without changing others; return whether the file changed.

    Parameters
    ----------
    offsets
        (Group, topic) -> queue id -> next queue offset.

    Raises
    ------
    StoreFormatError
        The existing file is not what a broker writes.
    """
    path = Path(root, CONFIG_DIR, _CONSUMERS)
    data, source = _load(path)
    name, changed = "offsetTable", False
    with _broker_file(source):
        table = data[name] = json_object(data.get(name), name)
        for (group, topic), wanted in offsets.items():
            key = f"{topic}@{group}"
            held = table[key] = json_object(table.get(key), f"{name}.{key}")
            for queue_id, offset in wanted.items():
                changed |= held.get(str(queue_id)) != offset
                held[str(queue_id)] = offset
        if changed and (len(data) == 1 or "dataVersion" in data):  # 4.x has none
            _count_version(data, now_ms)
    if changed:
        _save(path, data, replace)
    return changed


def _add_topics(data: dict[str, Any], queues: Mapping[str, int]) -> bool:
    """Add topics to the content of ``topics.json``; return whether it changed."""
    name = "topicConfigTable"
    changed = not data
    table = data[name] = json_object(data.get(name), name)
    for topic, count in queues.items():
        if table.get(topic) is None:
            table[topic] = config_json(TopicConfig(topic, count, count))
            changed = True
            continue
        place = f"{name}.{topic}"
        known = json_object(table[topic], place)
        key = "readQueueNums"
        read = json_number_or_default(known.get(key), f"{place}.{key}", _QUEUES)
        if read < count:
            known[key] = count
            changed = True
    return changed


def _levels(data: dict[str, Any]) -> dict[str, int]:
    """Return the offsets by delay level in the content of ``delayOffset.json``."""
    return {str(level): at for level, at in parse_delay_offsets(data).items()}


@contextmanager
def _broker_file(path: Path) -> Iterator[None]:
    """Turn a ValueError about content that no broker writes into an error that names the file."""
    try:
        yield
    except ValueError as err:
        raise StoreFormatError(f"not what a broker writes: {err}", str(path)) from err


def _load(path: Path) -> tuple[dict[str, Any], Path]:
    """Do as `_read`, with advice in the error."""
    try:
        return _read(path)
    except StoreFormatError as err:
        advice = "restore the file, or move it away: a broker recreates it"
        raise StoreFormatError(f"{err.reason}. {advice}", err.path) from err


def _read(path: Path) -> tuple[dict[str, Any], Path]:
    """Return the file's content, or as a broker does its ``.bak``'s, and the path that was read.

    The content is empty if there is neither.
    """
    failure: StoreFormatError | None = None
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            content = _content(candidate, _CHECKS[path.name])
        except StoreFormatError as err:
            failure = failure or err
            continue
        if content is not None:
            return content, candidate
    if failure is not None:
        raise failure
    return {}, path


def _content(path: Path, check: Callable[[dict[Any, Any]], Any]) -> dict[str, Any] | None:
    try:
        data = read_file(str(path))
    except FileNotFoundError:
        return None
    except OSError as err:
        raise StoreFormatError(f"cannot be read: {err}", str(path)) from err
    if not data.strip():
        return None
    with _broker_file(path):
        content = _with_text_keys(json_object(decode_lenient_json(data), "the file"))
        parse_data_version(content.get("dataVersion"))
        check(content)
        return content


def _load_or_set_aside(path: Path) -> tuple[dict[str, Any], Path]:
    """Do as `_read`; if neither file can be read, rename the file and return no content."""
    try:
        return _read(path)
    except StoreFormatError as err:
        kept = set_aside(str(path))
        logger.warning("%s; it is recreated, and the old file is kept as %s", err, kept)
        return {}, path


def set_aside(place: str) -> str:
    """Rename a file that cannot be read, before it is replaced; return its new name.

    Raises
    ------
    StoreWriteError
        It cannot be renamed.
    """
    kept = f"{place}.unreadable"
    try:
        Path(place).replace(kept)
    except FileNotFoundError:  # only its backup is there
        return f"{place}.bak"
    except OSError as err:
        raise write_error(err, kept) from err
    return kept


def _with_text_keys(value: dict[Any, Any]) -> dict[str, Any]:
    """Return the content with texts as keys, as in strict JSON; ValueError for other keys."""
    try:
        text = json.dumps(_text_keys(value), allow_nan=False)
    except RecursionError as err:
        raise ValueError("nested too deeply") from err
    content: dict[str, Any] = json.loads(text)
    return content


def _text_keys(value: Any) -> Any:
    if isinstance(value, list):
        return [_text_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    for key in value:
        if not isinstance(key, (str, int)):
            raise ValueError(f"an object as a key: {dict(key)!r:.80}")  # noqa: TRY004
    return {str(key): _text_keys(item) for key, item in value.items()}


def _count_version(data: dict[str, Any], now_ms: int) -> None:
    version = parse_data_version(data.get("dataVersion"))
    data["dataVersion"] = version.next(now_ms).to_json()


def _save(path: Path, data: dict[str, Any], replace: Replace) -> None:
    text = json.dumps(data, **_STYLE)
    try:
        make_directory(str(path.parent))
        replace(str(path), text.encode())
    except OSError as err:
        raise write_error(err, str(path)) from err


def to_fastjson(value: Any, depth: int = 0) -> str:
    """Return a value as a broker writes it into a file: UTF-8 text without a final line end.

    Objects whose keys are texts have a line for each member, indented by tabs; those whose keys
    are whole numbers (written without quotes) and lists have one line. The order is unchanged.
    """
    if isinstance(value, dict):
        return _object(value, depth) if value else "{}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(to_fastjson(each, depth) for each in value) + "]"
    return _text(value) if isinstance(value, str) else json.dumps(value, allow_nan=False)


def _object(members: dict[Any, Any], depth: int) -> str:
    before = "\n" + "\t" * (depth + 1)
    parts = []
    for key, value in members.items():
        name = f"{before}{_text(key)}" if isinstance(key, str) else str(int(key))
        parts.append(f"{name}:{to_fastjson(value, depth + 1)}")
    return "{" + ",".join(parts) + "\n" + "\t" * depth + "}"


def _text(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    try:
        quoted.encode()
    except UnicodeEncodeError:  # lone surrogates, which Java's strings may contain
        return json.dumps(text)
    return quoted
