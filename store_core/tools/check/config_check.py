# SPDX-License-Identifier: Apache-2.0
"""Check the settings files in ``config`` as a broker reads them at startup.

Source: RocketMQ ``ConfigManager.load``, ``BrokerController.initialize`` (release 5.3.3). A broker
uses the ``.bak`` of a file that it cannot read. If there is none, it starts with empty settings; if
the ``.bak`` is unreadable too, it does not start.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from store_core.config.config_files import (
    entries_of,
    load_consumer_offsets,
    parse_consumer_offsets,
    parse_delay_offsets,
    parse_group_configs,
    parse_topic_configs,
    read_json_file,
)
from store_core.config.consumer_filter_file import CONSUMER_FILTER_FILE, parse_consumer_filters
from store_core.config.data_version import parse_data_version
from store_core.config.lenient_json import json_field
from store_core.errors import (
    CorruptRecordError,
    StoreError,
    StoreFormatError,
    StorePermissionError,
    StoreReadError,
)
from store_core.layout import CONFIG_DIR
from store_core.queue.batch_consume_queue import max_queue_offset, min_queue_offset
from store_core.state.store_state import StoreState
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.findings import unread

if TYPE_CHECKING:
    from store_core.files.store_directory import StoreDirectory
    from store_core.snapshot.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import Findings

    ConfigParser = Callable[[dict[str, Any]], Any]

_Unread = (StoreFormatError, StorePermissionError)
_DAMAGED = (CorruptRecordError, StoreFormatError, StoreReadError)


class _SettingsFile(NamedTuple):
    """A file, its parser, its content in words, and whether a broker starts if it is unreadable."""

    name: str
    parse: ConfigParser
    says: str
    is_optional: bool = False


def _table(name: str) -> ConfigParser:
    return lambda data: entries_of(data, name)


_FILES = (
    _SettingsFile("topics.json", parse_topic_configs, "all topics"),
    _SettingsFile(
        "topicQueueMapping.json", _table("topicQueueMappingInfoMap"), "the queues of static topics"
    ),
    _SettingsFile(
        "consumerOffset.json",
        parse_consumer_offsets,
        "the offsets of groups, so that they begin again",
    ),
    _SettingsFile(
        "lmqConsumerOffset.json",
        parse_consumer_offsets,
        "the offsets of groups on light queues, so that they begin again",
    ),
    _SettingsFile("subscriptionGroup.json", parse_group_configs, "the settings of groups"),
    _SettingsFile(CONSUMER_FILTER_FILE, parse_consumer_filters, "the filters of groups"),
    _SettingsFile(
        "consumerOrderInfo.json", _table("table"), "which messages ordered groups are consuming"
    ),
    _SettingsFile(
        "delayOffset.json",
        parse_delay_offsets,
        "which delayed messages were delivered, so that all are delivered again",
    ),
    _SettingsFile("timermetrics", _table("timingCount"), "the counts of timer messages"),
    _SettingsFile(
        "transactionMetrics",
        _table("transactionCount"),
        "the counts of open transactions",
        is_optional=True,
    ),
    _SettingsFile(
        "messageRequestMode.json",
        _table("messageRequestModeMap"),
        "which groups consume by pop",
        is_optional=True,
    ),
)


def check_config(directory: StoreDirectory, findings: Findings) -> None:
    """Report each settings file that a broker cannot read, and the consequence."""
    for file in _FILES:
        path = directory.resolve(CONFIG_DIR, file.name)
        main, backup = (_content(directory, place, file.parse) for place in (path, path + ".bak"))
        if isinstance(main, _Unread):
            lost = f"lost: {file.says}"
            findings.add(unread(main, _kind(file, backup)), path, examples=[str(main), lost])
        elif isinstance(backup, _Unread):
            kind = FindingKind.SETTINGS_BACKUP
            if main is None and not file.is_optional:
                kind = FindingKind.SETTINGS_STOP
            findings.add(unread(backup, kind), path + ".bak", examples=[str(backup)])


def _kind(file: _SettingsFile, backup: object) -> FindingKind:
    """Return the kind of finding for an unreadable file, which depends on its backup."""
    if backup is None or (file.is_optional and isinstance(backup, _Unread)):
        return FindingKind.SETTINGS_LOST
    return FindingKind.SETTINGS_STOP if isinstance(backup, _Unread) else FindingKind.SETTINGS_OLD


def _content(directory: StoreDirectory, path: str, parse: ConfigParser) -> object:
    """Return a file's content, None if it is missing or empty, or the error of reading it."""
    try:
        data = read_json_file(directory, path)
        if data is None:
            return None
        try:
            parse_data_version(json_field(data, "dataVersion"))
            return parse(data)
        except ValueError as err:
            raise StoreFormatError(f"not what a broker writes: {err}", path) from err
    except _Unread as err:
        return err


def check_consumer_offsets(snapshot: StoreSnapshot, findings: Findings) -> None:
    """Report consumer offsets beyond the end of their queue or before its beginning.

    Offsets of deleted topics are skipped, and all offsets of a running broker, whose queues have
    grown since the snapshot found the end of the log.
    """
    if snapshot.kind.config_databases or snapshot.kind.queue_database:
        return
    if snapshot.state is StoreState.LIVE:
        return
    offsets = {}
    with suppress(StoreError):  # `check_config` reports it
        offsets = load_consumer_offsets(snapshot.directory)
    bounds: dict[tuple[str, int], tuple[int, int] | None] = {}
    for (group, topic), queues in sorted(offsets.items()):
        for queue_id, offset in sorted(queues.items()):
            if (topic, queue_id) not in bounds:
                bounds[topic, queue_id] = _bounds(snapshot, topic, queue_id)
            found = bounds[topic, queue_id]
            if found is not None:
                _compare(findings, f"{group} in {topic}/{queue_id}", offset, found)


def _compare(findings: Findings, place: str, offset: int, bounds: tuple[int, int]) -> None:
    begin, end = bounds
    if offset > end:
        text = f"offset {offset}, the queue ends at {end}"
        kind, count = FindingKind.OFFSET_BEYOND_END, offset - end
    elif 0 <= offset < begin:
        text = f"offset {offset}, the queue begins at {begin}"
        kind, count = FindingKind.OFFSET_EXPIRED, begin - offset
    else:
        return
    findings.add(kind, place, position=offset, count=count, examples=[text])


def _bounds(snapshot: StoreSnapshot, topic: str, queue_id: int) -> tuple[int, int] | None:
    """Return the first and the end offset of a queue; None if unknown, or if the topic is gone."""
    try:
        units = snapshot.batch_units(topic, queue_id)
        if units is not None:
            begin = min_queue_offset(units, max(snapshot.min_phy_offset, 0))
            return max(begin, 0), max_queue_offset(units)
        if (topic, queue_id) in snapshot.queue_paths:
            held = snapshot.queue_range(topic, queue_id)
            return held.min_offset, held.max_offset
    except _DAMAGED:
        return None
    with suppress(StoreError):
        return (0, 0) if topic in (snapshot.topic_configs or {}) else None
    return None
