# SPDX-License-Identifier: Apache-2.0
"""The data of a report: one pass over the log, one over queues and consumer groups."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Callable

from rmqsource.explore import questions
from rmqsource.explore.dead_letter_rows import DEAD_LETTER_COLUMNS, read_dead_letters
from rmqsource.explore.log_survey import Survey, survey_log
from rmqsource.explore.store_health import StoreHealth, store_health
from rmqsource.extras import notebook_package
from rmqsource.metadata import read_metadata
from rmqsource.options.source_options import SourceOptions
from rmqsource.scan.read_columns import no_progress
from rmqsource.scan.store_versions import make_token, open_snapshots
from rmqsource.tables import TABLES
from store_core.arrow import pa
from store_core.topics import DLQ_PREFIX, HALF_TOPICS, SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from store_core.arrow_types import Table

LISTED_DEAD_LETTERS = 100
_FAILFAST = "FAILFAST"
_SELECTING = (
    *("topics", "topic_pattern", "queue_ids", "starting_timestamp_ms", "ending_timestamp_ms"),
    *("starting_offsets", "ending_offsets", "keys", "unique_keys", "message_ids", "tags"),
)


@dataclass
class ReportData:
    """The data of a report; tables are data frames as those of `rmqsource.explore`.

    Attributes
    ----------
    lag_is_known, transactions_are_known
        False if a store keeps queues or consumer offsets in a database; the table is then empty.
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
    dead_letter_count: int = 0
    dead_letter_groups: dict[str, int] = field(default_factory=dict)
    newest_dead_letter_ms: int | None = None
    standings: list[StoreHealth] = field(default_factory=list)
    config: str | None = None
    bodies_checked: bool = False
    told: tuple[str, ...] = ()
    lag_is_known: bool = True
    transactions_are_known: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the data by name: tables as lists of rows, missing values as None."""
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
            "lag_is_known": self.lag_is_known,
            "transactions_are_known": self.transactions_are_known,
            "top_keys_short_by_at_most": counts.keys_missed,
            "dead_letter_count": self.dead_letter_count,
            "dead_letter_groups": self.dead_letter_groups,
            "standings": [asdict(one) for one in self.standings],
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
    """Read the data of a report.

    Damage does not stop it: the report has all readable data and the damage found. For stores with
    queues or settings in databases, it is limited to the log.

    Two passes: one over the log (without bodies), one over the queues. In addition, the half, op,
    delay and dead-letter topics are read, and headers of topics that take part in transactions.
    Times and keys among the options restrict the counts of the log, not the second pass.
    """
    if options.mode == _FAILFAST:
        options = replace(options, mode="PERMISSIVE")
    # Pinned: all parts read the same state, and the end of the log is searched for once.
    options = replace(options, snapshot=options.snapshot or make_token(options))
    counts = survey_log(options, progress)
    held = _Held(options, counts)
    return _collected(replace(options, drops_reported=held.is_whole), counts, held)


def _collected(options: SourceOptions, counts: Survey, held: _Held) -> ReportData:
    letters = _DeadLetters()
    if held.any_of(DLQ_PREFIX):
        letters.read(options)
    standings = store_health(options)
    has_queues = all(one.has_queues for one in standings)
    has_offsets = all(one.has_offsets for one in standings)
    has_transactions = any(held.any_of(topic) for topic in HALF_TOPICS)
    return ReportData(
        counts=counts,
        traffic=questions.traffic(counts),
        sizes=questions.sizes(counts),
        latency=questions.latency(counts),
        latency_summary=questions.latency_summary(counts),
        queue_skew=questions.queue_skew(counts),
        tags=questions.tags(counts),
        top_keys=questions.top_keys(counts),
        topics=questions.topics_of(options) if has_queues else questions.topics_in_log(counts),
        lag=(
            questions.consumer_lag_of(options)
            if has_queues and has_offsets
            else _no_rows(column.name for column in TABLES["consumer_offsets"].columns)
        ),
        delayed=_summary(
            options if held.any_of(SCHEDULE_TOPIC) else None,
            "delayed",
            ["level", "state"],
            ("deliver_timestamp", "first_due"),
        ),
        transactions=_summary(
            options if has_transactions and has_offsets else None,
            "transactions",
            ["state"],
            ("store_timestamp", "oldest"),
        ),
        dead_letters=notebook_package("pandas").DataFrame(
            letters.kept, columns=list(DEAD_LETTER_COLUMNS)
        ),
        dead_letter_count=sum(letters.by_group.values()),
        dead_letter_groups=letters.by_group,
        newest_dead_letter_ms=letters.newest_ms,
        standings=standings,
        config=options.config,
        bodies_checked=options.check_crc,
        lag_is_known=has_queues and has_offsets,
        transactions_are_known=has_offsets or not has_transactions,
    )


class _Held:
    """The topics that have messages in the log, if the survey counted all of it."""

    def __init__(self, options: SourceOptions, counts: Survey) -> None:
        everything = SourceOptions(options.paths)
        self.is_whole = all(
            getattr(options, name) == getattr(everything, name) for name in _SELECTING
        )
        self._topics = tuple(set(counts.queues["topic"].to_pylist()))

    def any_of(self, prefix: str) -> bool:
        """Return whether a topic with this prefix may contain a message."""
        return not self.is_whole or any(topic.startswith(prefix) for topic in self._topics)


class _DeadLetters:
    """The first dead letters, and counts of all of them."""

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self.by_group: dict[str, int] = {}
        self.newest_ms: int | None = None

    def read(self, options: SourceOptions) -> None:
        for row in read_dead_letters(options):
            if len(self.kept) < LISTED_DEAD_LETTERS:
                self.kept.append(row)
            self.by_group[row["group"]] = self.by_group.get(row["group"], 0) + 1
            stored = row["store_timestamp"]
            if stored is not None:
                at_ms = int(stored.timestamp() * 1000)
                self.newest_ms = max(self.newest_ms or at_ms, at_ms)


def _summary(
    options: SourceOptions | None, table: str, by: list[str], earliest: tuple[str, str]
) -> Any:
    """Count the rows of a table by columns, with the earliest time of each group.

    If ``options`` is None, the table is known to be empty.
    """
    time, name = earliest
    parts = [] if options is None else list(_counted(options, table, by, time))
    if not parts:
        return _no_rows([*by, "messages", name])
    frame = pa.concat_tables(parts).to_pandas()
    frame = frame.rename(columns={"count_all": "messages", f"{time}_min": name})
    grouped = frame.groupby(by, as_index=False)
    return grouped.agg({"messages": "sum", name: "min"})


def _no_rows(columns: Iterable[str]) -> Any:
    return notebook_package("pandas").DataFrame([], columns=list(columns))


def _counted(options: SourceOptions, table: str, by: list[str], time: str) -> Iterator[Table]:
    for snapshot in open_snapshots(options):
        with snapshot:
            for batch in read_metadata(table, snapshot, options):
                rows = pa.table({column: batch[column] for column in (*by, time)})
                found = rows.group_by(by).aggregate([([], "count_all"), (time, "min")])
                yield found.select([*by, "count_all", f"{time}_min"])
