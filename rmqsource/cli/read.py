# SPDX-License-Identifier: Apache-2.0
"""Reads of the command line, by the source's own planner and readers, without Spark."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rmqsource.errors import SourceOptionError
from rmqsource.explore.store_health import lost_log
from rmqsource.metadata import read_metadata
from rmqsource.options.option_values import did_you_mean, parse_list
from rmqsource.options.source_options import parse_options, sql_option
from rmqsource.scan.read_columns import read_columns
from rmqsource.scan.store_versions import open_snapshots
from rmqsource.tables import TABLES
from store_core.arrow import pa, pc
from store_core.config.message_store_config import KEYS as CONFIG_KEYS
from store_core.config.message_store_config import load_broker_config
from store_core.errors import StoreError
from store_core.files.store_directory import utf8_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from rmqsource.damage import OnDamage
    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Array, Columns

    Flags = Mapping[str, tuple[str, str | list[str] | None]]

logger = logging.getLogger(__name__)
MESSAGE_COLUMNS = tuple(column.name for column in TABLES["messages"].columns)
_BROKER_KEYS = (
    *("brokerName", "brokerClusterName", "brokerId", "brokerIP1", "brokerIP2", "brokerRole"),
    *("listenPort", "namesrvAddr", "deleteWhen", "fileReservedTime", "flushDiskType"),
    *("autoCreateTopicEnable", "autoCreateSubscriptionGroup", "messageDelayLevel"),
)
"""Keys that identify a broker's configuration, besides those that this package reads."""
_OTHER_TABLES = (
    "; other tables have commands of their own: lag, groups, queues, dlq, delayed, transactions, "
    "segments, plan"
)
_RESERVED = {"path": "PATH", "paths": "PATH", "table": "the command", "config": "--config"}
GREP_COLUMNS = ("body", "properties")
"""Columns that `Grep` searches."""


class WrongUseError(Exception):
    """The command line asks for something impossible; the text says what to write instead."""


def check_for_spark(what: str, path: str | Path) -> None:
    """Raise `WrongUseError` if a directory's name is not UTF-8, which Spark requires."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError as err:
        raise WrongUseError(
            f"{what} {path}: the name is not UTF-8, which Spark requires; use another directory"
        ) from err


def source_options(
    paths: Sequence[str], extra: Sequence[str], flags: Flags, on_damage: OnDamage
) -> SourceOptions:
    """Return the options of a read that reports damage to ``on_damage``.

    Parameters
    ----------
    flags
        Option of the source -> the flag that sets it, and its value or values; None or an empty
        list if it was not given.

    Raises
    ------
    WrongUseError
        An option is unknown, malformed or contradicts another one.
    """
    options = option_texts(paths, extra, flags)
    try:
        parsed = parse_options(options)
    except SourceOptionError as err:
        flag = flags.get(err.option, (f"--option {err.option}",))[0]
        raise WrongUseError(f"{flag}: {err.reason}") from err
    _check_config(parsed.config)
    sql = sql_option(parsed)
    if sql is not None and sql.ignored:
        logger.warning("--sql: %s", sql.ignored)
    return replace(parsed, on_damage=on_damage)


def _check_config(path: str | None) -> None:
    """Raise if a file is not a broker's: sizes and delay levels would silently be wrong."""
    if path is None:
        return
    given = load_broker_config(path)
    known = {*CONFIG_KEYS, *_BROKER_KEYS}
    if not known & set(given):
        near = next((hint for name in given for hint in [did_you_mean(name, known)] if hint), "")
        raise WrongUseError(
            f"--config {path}: has none of the keys of a broker's configuration, such as "
            f"storePathRootDir, mappedFileSizeCommitLog or brokerName{near or '.'} Is it the right "
            "file?"
        )


def table_options(
    table: str,
    paths: Sequence[str],
    config: str | None,
    extra: Sequence[str],
    on_damage: OnDamage,
    topic: Sequence[str] = (),
) -> SourceOptions:
    """Return the options of a metadata table; selections that it does not support are refused."""
    flags = {
        "table": ("the command", table),
        "config": ("--config", config),
        "topic": ("--topic", list(topic)),
    }
    return source_options(paths, extra, flags, on_damage)


def option_texts(paths: Sequence[str], extra: Sequence[str], flags: Flags) -> dict[str, str]:
    """Return the options of a read in the form for Spark; see `source_options`."""
    options = {"paths": json.dumps([utf8_path(each) for each in paths])}
    for name, (flag, value) in flags.items():
        if isinstance(value, list):
            options.update({name: json.dumps(listed(flag, value))} if value else {})
        elif value is not None:
            if not value.strip():
                raise WrongUseError(f"{flag}: is empty; give a value or omit it")
            options[name] = value
    for text in extra:
        name, equals, value = text.partition("=")
        if not equals:
            raise WrongUseError(f"--option: expected KEY=VALUE; found {text!r}")
        _check_free(name, options, flags)
        options[name] = value
    return options


def listed(flag: str, texts: Sequence[str]) -> list[str]:
    """Return the distinct values of a flag that may be repeated.

    Each text is a list in the form of the source's options: separated by commas, or a JSON array.
    """
    try:
        return list(dict.fromkeys(item for text in texts for item in parse_list(flag, text)))
    except SourceOptionError as err:
        raise WrongUseError(f"{flag}: {err.reason}") from err


def tag_expression(texts: Sequence[str]) -> str | None:
    """Return the tags of a flag in the form of the source's option; None if not given.

    Raises
    ------
    WrongUseError
        A text is empty, or requires several tags of one message.
    """
    tags: list[str] = []
    for text in texts:
        if not text.strip():
            raise WrongUseError("--tag: is empty; give a value or omit it")
        parts = [text] if text.lstrip().startswith("[") else text.split("||")
        tags += [tag for part in parts if part.strip() for tag in listed("--tag", [part])]
        if any("&&" in part for part in parts):
            raise WrongUseError(
                f"--tag: a message has only one tag, so && never matches; found {text!r}. For "
                "any of several tags, write TagA || TagB or TagA,TagB"
            )
    if texts and not tags:
        raise WrongUseError(f"--tag: names no tag; found {texts[0]!r}")
    return " || ".join(tags) if tags else None


def _check_free(name: str, options: Mapping[str, str], flags: Flags) -> None:
    if name.lower() in _RESERVED:
        more = _OTHER_TABLES if name.lower() == "table" else ""
        raise WrongUseError(f"--option {name}: is set by {_RESERVED[name.lower()]}{more}")
    if name.lower() in {given.lower() for given in options}:
        spelling = next(given for given in options if given.lower() == name.lower())
        first = flags[spelling][0] if spelling in flags else "--option"
        raise WrongUseError(f"--option {name}: is given twice, here and by {first}")


def unknown_topics(*options: SourceOptions, seen: Collection[str] = ()) -> Iterator[str]:
    """Yield a text for each requested topic that is neither in topics.json nor has queues.

    Nothing if topics.json cannot be read or there are no topics: the topics are then unknown.
    ``seen`` are topics of messages that were read, which may include deleted topics.
    """
    asked = dict.fromkeys(t for one in options for t in one.topics or () if t not in seen)
    if not asked:
        return
    known: set[str] = set()
    stores = 0
    try:
        for snapshot in (snapshot for one in options for snapshot in open_snapshots(one)):
            with snapshot:
                queues = (*snapshot.queue_paths, *snapshot.batch_queue_paths)
                known |= {topic for topic, _ in queues} | set(snapshot.topic_configs or {})
                stores += 1
    except StoreError:
        return
    who = "the store knows" if stores == 1 else "the stores know"
    for topic in asked:
        if known and topic not in known:
            yield f"{who} no topic {topic!r}{did_you_mean(topic, known)}"


def lost_logs(*options: SourceOptions) -> Iterator[str]:
    """Yield a text for each store that had messages but whose log has no file.

    A disk that is not mounted looks like this.
    """
    for snapshot in (snapshot for one in options for snapshot in open_snapshots(one)):
        with snapshot:
            text = lost_log(snapshot)
            if text:
                yield text


def lost_ends(*options: SourceOptions) -> Iterator[str]:
    """Yield a text for each store whose log ends too early, as other files of the store prove."""
    for snapshot in (snapshot for one in options for snapshot in open_snapshots(one)):
        with snapshot:
            if snapshot.evident_lost_end is not None:
                yield f"store {snapshot.directory.uri}: {snapshot.evident_lost_end}"


def checking_bodies(extra: Sequence[str]) -> Flags:
    """Return the option for checking bodies, for commands that copy or summarise messages.

    A copy of a damaged body would get a correct CRC. Empty if the user gives the option.
    """
    is_given = any(text.partition("=")[0].lower() == "checkcrc" for text in extra)
    return {} if is_given else {"checkCRC": ("the command", "true")}


def read_messages(
    options: SourceOptions, columns: tuple[str, ...], progress: Callable[[int, int], None]
) -> Iterator[Columns]:
    """Yield batches of messages; with ``mode=PERMISSIVE`` also damaged rows, as in Spark.

    ``progress`` is called with the number of splits read so far and their total.
    """
    return read_columns(options, columns, progress)


def read_table(table: str, options: SourceOptions) -> Iterator[Columns]:
    """Yield batches of a metadata table."""
    for snapshot in open_snapshots(options):
        with snapshot:
            yield from read_metadata(table, snapshot, options)


def rows_of(batch: Columns, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch, at most ``limit``, as plain Python values."""
    columns = [column.slice(0, limit).to_pylist() for column in batch.values()]
    for values in zip(*columns):
        yield dict(zip(batch, values))


class Grep:
    """Selects messages whose body, or one of whose ``NAME=VALUE``, matches an expression.

    Raises
    ------
    WrongUseError
        The expression is empty or is not valid in RE2.
    """

    def __init__(self, pattern: str) -> None:
        if not pattern:
            raise WrongUseError("--grep: is empty; give a value or omit it")
        self._pattern = pattern
        try:
            self._found(pa.array([b""], pa.binary()))
            self._found(pa.array([""], pa.string()))
        except pa.ArrowInvalid as err:
            raise WrongUseError(
                f"--grep: {pattern!r} is not a valid RE2 regular expression: {err}"
            ) from err

    def mask(self, batch: Columns) -> Array:
        """Return for each row whether it matches."""
        in_body = self._found(batch["body"]).fill_null(False)
        return pc.or_(in_body, pa.array(self._in_properties(batch["properties"])))

    def _found(self, texts: Array) -> Array:
        return pc.match_substring_regex(texts, self._pattern)

    def _in_properties(self, maps: Array) -> npt.NDArray[np.bool_]:
        """Return for each row whether one of its properties matches."""
        starts = maps.offsets.to_numpy()
        first, last = int(starts[0]), int(starts[-1])
        names = maps.keys.slice(first, last - first)
        values = maps.items.slice(first, last - first)
        texts = pc.binary_join_element_wise(
            names.cast(pa.string()), values.cast(pa.string()), "=", null_handling="replace"
        )
        hits = self._found(texts).fill_null(False).to_numpy(zero_copy_only=False)
        before = np.concatenate([[0], np.cumsum(hits)])
        counts = before[starts[1:] - first] - before[starts[:-1] - first]
        has_hit: npt.NDArray[np.bool_] = counts > 0
        return has_hit
