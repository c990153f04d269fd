"""All that a report tells of some stores: one pass over the log, one over queues and groups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable

import pyarrow as pa

from rmqsource.explore import questions
from rmqsource.explore.dead_letter_rows import DEAD_LETTER_COLUMNS, dead_letters
from rmqsource.explore.log_survey import Survey, survey
from rmqsource.extras import notebook_package
from rmqsource.metadata import read_metadata
from rmqsource.options.source_options import SourceOptions
from rmqsource.scan.read_columns import no_progress
from rmqsource.scan.store_versions import make_token, open_snapshots
from store_core.topics import DLQ_PREFIX, HALF_TOPIC, SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

LISTED_DEAD_LETTERS = 100
_FAILFAST = "FAILFAST"
_SELECTING = (
    *("topics", "topic_pattern", "queue_ids", "starting_timestamp_ms", "ending_timestamp_ms"),
    *("starting_offsets", "ending_offsets", "keys", "unique_keys", "message_ids", "tags"),
)


@dataclass
class ReportData:
    """What a report tells; tables are data frames as those of `rmqsource.explore`.

    Attributes
    ----------
    counts
        The survey of the log.
    delayed
        level, state, messages, first_due (the earliest deliver time).
    transactions
        state, messages, oldest (store time of the first half message).
    dead_letters, dead_letter_count
        The first hundred, and how many there are.
    bodies_checked
        Whether bodies were compared with their CRCs.
    told
        What else is damaged: parts that were passed over, stores whose log is gone.
    """

    counts: Survey
    traffic: Any
    sizes: Any
    latency: Any
    latency_summary: Any
    queue_skew: Any
    tags: Any
    top_keys: Any
    topics: Any
    lag: Any
    delayed: Any
    transactions: Any
    dead_letters: Any
    dead_letter_count: int
    bodies_checked: bool = False
    told: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name: tables as lists of rows, gaps in them as None."""
        counts = self.counts
        return {
            "stores": list(counts.stores),
            "messages": counts.messages,
            "bytes": counts.bytes,
            "first_store_ms": counts.first_ms,
            "last_store_ms": counts.last_ms,
            "damaged_places": counts.gaps,
            "damaged_bytes": counts.gap_bytes,
            "damage": counts.damage,
            "other_damage": list(self.told),
            "bodies_checked": self.bodies_checked,
            "top_keys_short_by_at_most": counts.keys_missed,
            "dead_letter_count": self.dead_letter_count,
            **{name: _rows(getattr(self, name)) for name in _TABLES},
        }


_TABLES = (
    *("traffic", "sizes", "latency", "latency_summary", "queue_skew", "tags", "top_keys"),
    *("topics", "lag", "delayed", "transactions", "dead_letters"),
)


def _rows(frame: Any) -> list[dict[str, Any]]:
    pandas = notebook_package("pandas")
    plain = frame.astype(object)
    lists = plain.map(lambda value: isinstance(value, list)).to_numpy()
    plain = plain.where(plain.notna() | lists, None).replace([pandas.NaT], None)
    rows: list[dict[str, Any]] = plain.to_dict("records")
    return rows


def collect(
    options: SourceOptions, progress: Callable[[int, int], None] = no_progress
) -> ReportData:
    """Read what a report tells.

    Damage never ends it: what can be read is told, and the damage with it.

    Two passes: one over the log (without bodies), one over the queues; beside them the half, op,
    delay and dead-letter topics are read, and headers of topics that take part in transactions.
    Times and keys among the options narrow what is counted in the log, not the second pass.
    """
    if options.mode == _FAILFAST:
        options = replace(options, mode="PERMISSIVE")
    # Pinned: all parts tell of the same moment, and the end of the log is found once.
    options = replace(options, snapshot=options.snapshot or make_token(options))
    counts = survey(options, progress)
    held = _Held(options, counts)
    letters, count = _dead_letters(options) if held.any_of(DLQ_PREFIX) else ([], 0)
    return ReportData(
        counts=counts,
        traffic=questions.traffic(counts),
        sizes=questions.sizes(counts),
        latency=questions.latency(counts),
        latency_summary=questions.latency_summary(counts),
        queue_skew=questions.queue_skew(counts),
        tags=questions.tags(counts),
        top_keys=questions.top_keys(counts),
        topics=questions.topics_of(options),
        lag=questions.consumer_lag_of(options),
        delayed=_summary(
            options if held.any_of(SCHEDULE_TOPIC) else None,
            "delayed",
            ["level", "state"],
            ("deliver_timestamp", "first_due"),
        ),
        transactions=_summary(
            options if held.any_of(HALF_TOPIC) else None,
            "transactions",
            ["state"],
            ("store_timestamp", "oldest"),
        ),
        dead_letters=notebook_package("pandas").DataFrame(
            letters, columns=list(DEAD_LETTER_COLUMNS)
        ),
        dead_letter_count=count,
        bodies_checked=options.check_crc,
    )


class _Held:
    """Which topics have messages in the log, where the survey has seen all of it."""

    def __init__(self, options: SourceOptions, counts: Survey) -> None:
        everything = SourceOptions(options.paths)
        self._is_whole = all(
            getattr(options, name) == getattr(everything, name) for name in _SELECTING
        )
        self._topics = tuple(set(counts.queues["topic"].to_pylist()))

    def any_of(self, prefix: str) -> bool:
        """Tell whether a topic that begins so may hold a message."""
        return not self._is_whole or any(topic.startswith(prefix) for topic in self._topics)


def _dead_letters(options: SourceOptions) -> tuple[list[dict[str, Any]], int]:
    kept: list[dict[str, Any]] = []
    count = 0
    for row in dead_letters(options):
        count += 1
        if count <= LISTED_DEAD_LETTERS:
            kept.append(row)
    return kept, count


def _summary(
    options: SourceOptions | None, table: str, by: list[str], earliest: tuple[str, str]
) -> Any:
    """Count the rows of a table by some columns, with the earliest of its times.

    No options: it is known to have no row.
    """
    time, name = earliest
    parts = [] if options is None else list(_counted(options, table, by, time))
    if not parts:
        return notebook_package("pandas").DataFrame([], columns=[*by, "messages", name])
    frame = pa.concat_tables(parts).to_pandas()
    frame = frame.rename(columns={"count_all": "messages", f"{time}_min": name})
    grouped = frame.groupby(by, as_index=False)
    return grouped.agg({"messages": "sum", name: "min"})


def _counted(options: SourceOptions, table: str, by: list[str], time: str) -> Iterator[Any]:
    for snapshot in open_snapshots(options):
        with snapshot:
            for batch in read_metadata(table, snapshot, options):
                rows = pa.table({column: batch[column] for column in (*by, time)})
                found = rows.group_by(by).aggregate([([], "count_all"), (time, "min")])
                yield found.select([*by, "count_all", f"{time}_min"])
