"""Messages by id on the command line: what an id may be, and why none was found."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from rmqsource.cli.read import read_messages, rows_of
from rmqsource.explore.trace_events import moment
from rmqsource.options.option_table import is_message_id
from rmqsource.options.sql_option import sql_option
from rmqsource.scan.read_columns import no_progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqsource.options.source_options import SourceOptions

_COLUMNS = ("topic", "queue_id", "keys", "tags", "store_timestamp", "properties")
_LOOKED_AT = 10
_UNSELECTED: dict[str, Any] = dict.fromkeys(
    (
        *("topics", "topic_pattern", "queue_ids", "starting_timestamp_ms", "ending_timestamp_ms"),
        *("starting_offsets", "ending_offsets", "keys", "unique_keys", "message_ids", "tags"),
        "sql_filter",
    )
)


def reads_of_id(text: str, options: SourceOptions) -> list[tuple[str, SourceOptions]]:
    """Return what an id may be, and the read that finds it so, in the order to try them.

    A client's id (UNIQ_KEY) can have the form of an offset message id, but hardly ever names a
    record of the store that has this id.
    """
    by_key = ("unique key", replace(options, unique_keys=(text,)))
    if not is_message_id(text.upper()):
        return [by_key]
    return [("offset message id", replace(options, message_ids=(text.upper(),))), by_key]


def not_found(ids: Iterable[str], options: SourceOptions) -> Iterator[str]:
    """Yield what to say of ids that a read did not find: there is none, or it is not selected."""
    everything = replace(options, **_UNSELECTED)
    for text in ids:
        for _, read in reads_of_id(text, everything):
            rows = list(islice(_rows(read), _LOOKED_AT))
            if rows:
                places = dict.fromkeys(_why_not(row, options) for row in rows)
                yield f"id {text!r} was found, but {'; and '.join(places)}"
                break
        else:
            both = "neither as offset message id nor as unique key"
            what = both if is_message_id(text.upper()) else "as unique key"
            yield f"id {text!r} was not found, {what}"


def _rows(options: SourceOptions) -> Iterator[dict[str, Any]]:
    for batch in read_messages(options, _COLUMNS, no_progress):
        yield from (row for row in rows_of(batch) if row["topic"] is not None)


def _why_not(row: dict[str, Any], options: SourceOptions) -> str:
    """Say what of a message the options do not select."""
    topic, pattern, tag = row["topic"], options.topic_pattern, row["tags"]
    keys = row["keys"] or []
    at = round(row["store_timestamp"].timestamp() * 1000) if row["store_timestamp"] else None
    begin, end = options.starting_timestamp_ms, options.ending_timestamp_ms
    reasons = []
    if (options.topics is not None and topic not in options.topics) or (
        pattern and not re.fullmatch(pattern, topic)
    ):
        reasons.append(f"in topic {topic!r}")
    if options.queue_ids is not None and row["queue_id"] not in options.queue_ids:
        reasons.append(f"in queue {row['queue_id']}")
    if options.keys is not None and not set(options.keys) & set(keys):
        reasons.append(f"with keys {', '.join(map(repr, keys))}" if keys else "without keys")
    if options.tags is not None and tag not in options.tags:
        reasons.append("without a tag" if tag is None else f"with tag {tag!r}")
    if at is not None and not (at if begin is None else begin) <= at < (
        at + 1 if end is None else end
    ):
        reasons.append(f"stored at {moment(at)} UTC")
    sql = sql_option(options)
    if sql is not None and not sql.sql_filter.matches(dict(row["properties"])):
        reasons.append("with other properties than --sql asks for")
    return ", ".join(reasons) or "another option leaves it out"
