"""The scenarios by letter; each measures both sides and returns figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from bench.scenarios import decode, jobs, key_query, memory, scan

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
}
