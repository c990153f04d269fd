"""Which tests `make test` leaves to `make test-full`: what takes long, and what is much of one kind.

A test is marked `full` where it stands in one of the files below, uses Spark and is none of the
walks, or takes a golden store that is not one of the six of the fast tier.
"""

from __future__ import annotations

import pytest

FILES = ("tests/test_notebooks.py",)
"""Files, and folders, that start processes, kill them, or go through hundreds of cases."""

WALKS = frozenset(
    {
        "test_read.py::test_golden_messages[cluster-5x]",
        "test_read.py::test_every_table_has_its_schema_and_rows[messages]",
        "test_read.py::test_counting_and_limits",
        "test_read.py::test_pushed_filters_reach_the_planner",
        "test_read.py::test_errors_reach_the_user",
        "test_read.py::test_damage_as_spark_shows_it",
        "test_readme.py::test_examples_run_in_an_empty_folder[README.md]",
        "test_read.py::test_a_sql_filter",
        "test_where.py::test_through_spark",
        "test_read_stream.py::test_limits_and_progress",
        "test_read_stream.py::test_a_mirror_through_the_sink_equals_its_source",
        "test_write.py::test_what_is_written_is_read_and_can_be_written_again",
        "test_write.py::test_a_bad_row_fails_the_job_before_anything_is_appended",
        "test_write.py::test_a_streaming_batch_is_written_once",
        "test_copy.py::test_copied_delayed_messages_count_as_delivered",
        "test_compacted.py::test_sql_over_a_compacted_topic",
        "test_live_spark.py::test_batch_equals_the_files",
        "test_live_spark.py::test_a_stream_from_topic_to_topic",
        "test_export_store.py::test_csv_can_be_read_by_others",
        "test_demo.py::test_demo_shows_topics_window_key_and_plan",
    }
)
"""Twenty tests with Spark that go each way once: reads, filters, streams, writes, clusters."""

GOLDEN = frozenset(
    {"onefile-5x", "classic-4x", "batch-5x", "ext-5x", "cluster-5x", "crashed-551"}
)
"""Golden stores of the fast tier: one of each kind."""


def mark(item: pytest.Item, golden_names: frozenset[str]) -> None:
    """Mark a test `full` if `make test` leaves it out."""
    place = item.nodeid
    if place.startswith(FILES) or _is_more_spark(item) or _is_more_golden(item, golden_names):
        item.add_marker(pytest.mark.full)


def _is_more_spark(item: pytest.Item) -> bool:
    is_spark = item.get_closest_marker("spark") is not None
    return is_spark and item.nodeid.rpartition("/")[2] not in WALKS


def _is_more_golden(item: pytest.Item, golden_names: frozenset[str]) -> bool:
    given = getattr(getattr(item, "callspec", None), "params", {}).values()
    names = {value for value in given if isinstance(value, str)} & golden_names
    return bool(names) and not names <= GOLDEN
