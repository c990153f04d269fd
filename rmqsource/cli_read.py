"""What the command line reads: the source's own planner and readers, without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rmqsource._text import did_you_mean
from rmqsource.errors import SourceOptionError
from rmqsource.metadata import read_metadata
from rmqsource.option_table import is_message_id
from rmqsource.options import parse_options
from rmqsource.read_columns import read_columns
from rmqsource.stores import open_snapshots
from rmqsource.tables import TABLES
from store_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rmqsource.options import SourceOptions

    Columns = dict[str, Any]

MESSAGE_COLUMNS = tuple(column.name for column in TABLES["messages"].columns)

_RESERVED = {"path": "PATH", "paths": "PATH", "table": "the command", "config": "--config"}


class WrongUseError(Exception):
    """The command line asks for something that cannot be; the text says what to write."""


def source_options(
    paths: Sequence[str], extra: Sequence[str], flags: Mapping[str, tuple[str, str]]
) -> SourceOptions:
    """Return the options of a read.

    Parameters
    ----------
    paths
        Store roots.
    extra
        Texts ``KEY=VALUE``, as given with ``--option``.
    flags
        By the source's option: the flag that stands for it, and its value; empty ones are left out.

    Raises
    ------
    WrongUseError
        An option is unknown, malformed or contradicts another one.
    """
    options = option_texts(paths, extra, flags)
    try:
        return parse_options(options)
    except SourceOptionError as err:
        flag = flags.get(err.option, (f"--option {err.option}",))[0]
        raise WrongUseError(f"{flag}: {err.reason}") from err


def option_texts(
    paths: Sequence[str], extra: Sequence[str], flags: Mapping[str, tuple[str, str]]
) -> dict[str, str]:
    """Return the options of a read as Spark takes them; see `source_options`."""
    options = {"paths": json.dumps(list(paths))}
    options.update((name, value) for name, (_, value) in flags.items() if value)
    for text in extra:
        name, equals, value = text.partition("=")
        if not equals:
            raise WrongUseError(f"--option: expected KEY=VALUE; found {text!r}")
        _check_free(name, options, flags)
        options[name] = value
    return options


def _check_free(
    name: str, options: Mapping[str, str], flags: Mapping[str, tuple[str, str]]
) -> None:
    if name.lower() in _RESERVED:
        raise WrongUseError(f"--option {name}: is given by {_RESERVED[name.lower()]}")
    if name.lower() in {given.lower() for given in options}:
        spelling = next(given for given in options if given.lower() == name.lower())
        first = flags[spelling][0] if spelling in flags else "--option"
        raise WrongUseError(f"--option {name}: is given twice, here and by {first}")


def id_options(text: str) -> list[tuple[str, str]]:
    """Return the options that find a message by id, in the order in which they are tried.

    A client's id (UNIQ_KEY) can have the form of an offset message id, but hardly ever names a
    record of the store that has this id.
    """
    by_key = ("uniqueKeys", json.dumps([text]))
    return [("messageIds", text), by_key] if is_message_id(text.upper()) else [by_key]


def not_found(ids: Sequence[str]) -> list[str]:
    """Return what to say of ids, as given with ``--id``, of which there is no message."""
    both = "neither as offset message id nor as unique key"
    return [
        f"id {text!r} was not found, {both if is_message_id(text.upper()) else 'as unique key'}"
        for text in ids
    ]


def unknown_topics(*options: SourceOptions) -> Iterator[str]:
    """Yield what to say of each topic asked for that is neither in topics.json nor has queues.

    Nothing where topics.json cannot be read, or there is neither: what topics there are is not
    known then.
    """
    asked = dict.fromkeys(topic for one in options for topic in one.topics or ())
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


def read_messages(
    options: SourceOptions, columns: tuple[str, ...], progress: Callable[[int, int], None]
) -> Iterator[Columns]:
    """Yield batches of messages; with ``mode=PERMISSIVE``, gaps too, as Spark would get them.

    ``progress`` is told how many splits are read, and of how many.
    """
    return read_columns(options, columns, progress)


def read_table(table: str, options: SourceOptions) -> Iterator[Columns]:
    """Yield batches of a table of metadata."""
    for snapshot in open_snapshots(options):
        with snapshot:
            yield from read_metadata(table, snapshot, options)


def rows_of(batch: Columns, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch, at most ``limit``, as plain Python values."""
    columns = [column.slice(0, limit).to_pylist() for column in batch.values()]
    for values in zip(*columns):
        yield dict(zip(batch, values))
