# SPDX-License-Identifier: Apache-2.0
"""Copies of a store's messages, appended to another store by Spark, all or none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as sf

from rmqsource.options.source_options import parse_options
from rmqsource.scan.store_versions import open_snapshots
from rmqsource.tables import CORRUPT_RECORD
from store_core.files.store_directory import StoreDirectory, utf8_path
from store_core.staged_commit.job import Ledger
from store_core.staged_commit.staging import open_intents
from store_core.topics import topic_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from store_core.staged_commit.staging import Commit

COPIED_COLUMNS = {
    "topic": "string",
    "queue_id": "int",
    "body": "binary",
    "properties_raw": "binary",
    "flag": "int",
    "born_timestamp": "timestamp",
    "born_host": "string",
    "reconsume_times": "int",
}
"""Column -> type: the parts of a message that do not depend on its place in the log."""
_NORMAL = "normal"
_SYSTEM_TOPICS = "systemTopics"


@dataclass(frozen=True)
class Copied:
    """Result of a copy.

    Attributes
    ----------
    commit
        The commit that appended messages; None if nothing was appended.
    """

    commit: Commit | None
    skipped: int
    gaps: int = 0


def copy_store(
    spark: SparkSession,
    options: Mapping[str, str],
    target: str,
    sink_options: Mapping[str, str],
) -> Copied:
    """Append messages to a store; topics, queues, properties and bodies stay as they are.

    Messages of a broker's own topics are left out unless ``systemTopics`` is true: a broker on the
    target would deliver or check them again.
    """
    columns, chosen, gaps = dict(COPIED_COLUMNS), dict(options), Observation()
    can_pass = parse_options(chosen).mode != "FAILFAST"
    if can_pass:
        chosen = {name: text for name, text in chosen.items() if name.lower() != "mode"}
        chosen["mode"] = "PERMISSIVE"
        columns[CORRUPT_RECORD.name] = "string"
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    messages = spark.read.format("rocketmq-store").options(**chosen).schema(schema).load()
    if can_pass:
        damage = CORRUPT_RECORD.name
        messages = messages.observe(gaps, sf.count(damage).alias("gaps"))
        messages = messages.where(sf.col(damage).isNull()).drop(damage)
    done = append_messages(messages, lambda: _system_topics(options), target, sink_options)
    return replace(done, gaps=int(gaps.get["gaps"] or 0)) if can_pass else done


def append_messages(
    messages: DataFrame,
    system_topics: Callable[[], Sequence[str]],
    target: str,
    sink_options: Mapping[str, str],
) -> Copied:
    """Append messages to a store; a broker's own topics only if ``systemTopics`` is true."""
    before = commits_begun(target)
    skipped = None
    if sink_options.get(_SYSTEM_TOPICS, "false").lower() != "true":
        skipped = Observation()
        messages = _without(messages, system_topics(), skipped)
    messages.write.format("rocketmq-store").mode("append").options(**sink_options).save(
        utf8_path(target)
    )
    made = [commit for commit in commits_begun(target) if commit not in before]
    count = int(skipped.get["skipped"] or 0) if skipped is not None else 0
    return Copied(max(made, key=lambda commit: commit.end_offset, default=None), count)


def commits_begun(target: str) -> list[Commit]:
    """Return a store's last recorded commit, and those in its log that are not yet recorded.

    A write that succeeded is committed even if the disk did not let it record the commit.
    """
    root = StoreDirectory(target).resolve()
    last = Ledger(root).last_commit()
    return [*([last] if last is not None else []), *open_intents(StoreDirectory(root)).values()]


def _system_topics(options: Mapping[str, str]) -> list[str]:
    """Return the topics of the stores that are not applications' topics."""
    found = set()
    for snapshot in open_snapshots(parse_options(dict(options))):
        with snapshot:
            snapshot.kind.require_queue_files("system topics are not known; copy all topics")
            known = snapshot.topic_configs or {}
            for topic, _ in (*snapshot.queue_paths, *snapshot.batch_queue_paths):
                if topic_kind(topic, known.get(topic)) != _NORMAL:
                    found.add(topic)
    return sorted(found)


def _without(messages: DataFrame, topics: Sequence[str], counted: Observation) -> DataFrame:
    is_out = messages["topic"].isin(topics) if topics else sf.lit(False)
    observed = messages.observe(counted, sf.sum(is_out.cast("long")).alias("skipped"))
    return observed.where(~is_out)
