"""The scenarios by letter; each measures both sides and returns figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from bench.scenarios import (
    consuming,
    decode,
    delay,
    exploring,
    filtered_scan,
    filters,
    jobs,
    key_query,
    live_spark,
    memory,
    producing,
    reopening,
    replication,
    salvage,
    scan,
    sink,
    stream_catch_up,
    stream_idle,
    stream_latency,
    stream_memory,
    transactions,
    writes,
)

if TYPE_CHECKING:
    from bench.context import Context
    from bench.figures import Figure

SCENARIOS: dict[str, Callable[[Context], list[Figure]]] = {
    "a": scan.all_columns,
    "b": scan.three_columns,
    "c": decode.one_thread,
    "d": key_query.warm_query,
    "e": jobs.one_key,
    "f": jobs.small_topic,
    "g": jobs.ten_times,
    "h": memory.peak_memory,
    "i": writes.append_batches,
    "j": writes.put_one_by_one,
    "k": reopening.dispatch_all,
    "l": reopening.abnormal_recovery,
    "m": key_query.bulk_lookup,
    "n": writes.group_commit,
    "o": sink.beside_parquet,
    "p": sink.beside_java,
    "q": sink.commit_phase,
    "r": exploring.report,
    "s": memory.peak_memory_of_writing,
    "t": stream_catch_up.catch_up,
    "u": stream_idle.idle_triggers,
    "v": stream_latency.latency,
    "w": stream_memory.stream_memory,
    "x": exploring.export_parquet,
    "y": salvage.salvage,
    "z": filtered_scan.filtered_scan,
    "za": filters.per_message,
    "zc": transactions.commit_in_bulk,
    "zd": delay.deliver_backlog,
    "ze": replication.catch_up_of_java,
    "zf": replication.catch_up_of_ours,
    "zg": replication.synchronous,
    "zh": replication.cost_of_a_slave,
    "zi": producing.synchronous,
    "zj": producing.asynchronous,
    "zk": producing.batches,
    "zl": consuming.push_consumer,
    "zm": live_spark.read,
    "zn": live_spark.write,
}
