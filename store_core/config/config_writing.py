"""Write the broker's files below ``config``: topics and delay offsets, merged into what is there.

Source: RocketMQ ``ConfigManager.persist``, ``TopicConfigSerializeWrapper``,
``DelayOffsetSerializeWrapper`` (release 5.3.3).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from store_core.errors import StoreFormatError
from store_core.files.file_writing import make_directory, write_error
from store_core.lenient_json import parse_lenient_json
from store_core.regular_file import read_file

if TYPE_CHECKING:
    from collections.abc import Mapping

Replace = Callable[[str, bytes], None]
"""Puts a file in place, whole or not at all."""

_READ_WRITE = 6  # bits of TopicConfig.perm
_TOPICS, _DELAYS = "topics.json", "delayOffset.json"


def merge_topics(root: str, queues: Mapping[str, int], now_ms: int, replace: Replace) -> bool:
    """Make topics known to the broker that opens the store next; tell whether the file changed.

    A topic that is not there is added, with so many queues to read and to write. Of one that is
    there only the number of queues to read grows, where messages lie in queues beyond it: nobody
    would consume them. All else stays as it is.

    Parameters
    ----------
    root
        Of the store.
    queues
        Topic -> queues that hold messages, or may.
    now_ms
        Milliseconds since the epoch.
    replace
        Writes the file.

    Raises
    ------
    StoreFormatError
        The file that is there is not what a broker writes.
    """
    path = Path(root, "config", _TOPICS)
    data = _load(path)
    table = _object(data, "topicConfigTable", path)
    changed = False
    for topic, count in queues.items():
        known = table.get(topic)
        if known is None:
            table[topic] = _topic(topic, count)
            changed = True
        elif int(known.get("readQueueNums", 16)) < count:
            known["readQueueNums"] = count
            changed = True
    if changed or not data:
        _save(path, data, now_ms, replace)
    return changed


def merge_delay_offsets(
    root: str, offsets: Mapping[int, tuple[int, int]], now_ms: int, replace: Replace
) -> bool:
    """Note from where on delayed messages are to be delivered; tell whether the file changed.

    Without the file a broker delivers all messages that ever were delayed once more.

    Parameters
    ----------
    root
        Of the store.
    offsets
        Delay level -> where its queue ends, and the next queue offset to deliver. A level that is
        noted otherwise already has messages that wait: it stays.
    now_ms, replace
        See `merge_topics`.

    Raises
    ------
    StoreFormatError
        The file that is there is not what a broker writes.
    """
    path = Path(root, "config", _DELAYS)
    data = _load(path)
    table = _object(data, "offsetTable", path)
    before = {str(level): at for level, at in table.items()}
    after = dict(before)
    for level, (end, wanted) in offsets.items():
        if before.get(str(level), 0) == end:
            after[str(level)] = wanted
        else:
            after.setdefault(str(level), 0)
    if after == before and data.get("dataVersion"):
        return False
    data["offsetTable"] = after
    _save(path, data, now_ms, replace)
    return True


def _topic(name: str, queues: int) -> dict[str, Any]:
    return {
        "attributes": {},
        "order": False,
        "perm": _READ_WRITE,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }


def _load(path: Path) -> dict[str, Any]:
    """Return the file's content, or its ``.bak``'s, as a broker does; empty where there is none."""
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            text = read_file(str(candidate)).decode()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as err:
            raise StoreFormatError(f"cannot be read: {err}", str(candidate)) from err
        if not text.strip():
            continue
        try:
            value = parse_lenient_json(text)
        except ValueError as err:
            raise StoreFormatError(f"not what a broker writes: {err}", str(candidate)) from err
        if not isinstance(value, dict):
            raise StoreFormatError("not what a broker writes: not an object", str(candidate))
        return value
    return {}


def _object(data: dict[str, Any], key: str, path: Path) -> dict[Any, Any]:
    table = data.setdefault(key, {})
    if not isinstance(table, dict):
        raise StoreFormatError(f"not what a broker writes: {key} is no object", str(path))
    return table


def _save(path: Path, data: dict[str, Any], now_ms: int, replace: Replace) -> None:
    version = data.get("dataVersion") or {}
    counter = int(version.get("counter", 0)) + 1
    state = int(version.get("stateVersion", 0))
    data["dataVersion"] = {"counter": counter, "stateVersion": state, "timestamp": now_ms}
    text = json.dumps(data, indent="\t", separators=(",", ":"), sort_keys=True)
    try:
        make_directory(str(path.parent))
        replace(str(path), text.encode())
    except OSError as err:
        raise write_error(err, str(path)) from err
