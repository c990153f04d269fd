# SPDX-License-Identifier: Apache-2.0
"""The tests that `make test` leaves to `make test-full`: slow ones, or many of a kind.

A test is marked `full` if it is in one of the files below and not in `KEPT`, if it uses Spark and
is not one of the walks, or if it takes a golden store that is not one of the six of the fast tier.
"""

from __future__ import annotations

import pytest

FILES = (
    "tests/bench/",
    "tests/hostile/",
    "tests/maintenance/",
    "tests/rmqnet/test_stop.py",
    "tests/rmqsource/cli/test_exit_codes.py",
    "tests/rmqsource/cli/commands/test_explore.py",
    "tests/rmqsource/cli/test_file_uris.py",
    "tests/rmqsource/cli/test_filters.py",
    "tests/rmqsource/cli/commands/test_follow.py",
    "tests/rmqsource/cli/test_incident.py",
    "tests/rmqsource/cli/test_interrupt.py",
    "tests/rmqsource/cli/test_safe_output.py",
    "tests/rmqsource/cli/commands/test_send_tail_cluster.py",
    "tests/rmqsource/cli/test_tables.py",
    "tests/rmqsource/live/test_live_stream.py",
    "tests/rmqsource/plots/test_plots.py",
    "tests/rmqsource/report/test_kinds_of_stores.py",
    "tests/rmqsource/report/test_report_page.py",
    "tests/rmqsource/scan/test_message_reader.py",
    "tests/rmqsource/scan/test_remote_reads.py",
    "tests/rmqsource/sink/test_committing_faults.py",
    "tests/rmqsource/sink/test_killed_sink.py",
    "tests/rmqsource/stream/test_follow.py",
    "tests/rmqsource/stream/test_golden_streams.py",
    "tests/rmqsource/stream/test_live_store.py",
    "tests/rmqsource/stream/test_losses.py",
    "tests/rmqsource/stream/test_mirror.py",
    "tests/rmqsource/test_bounded_memory.py",
    "tests/rmqsource/test_damaged_byte.py",
    "tests/rmqsource/test_files_that_are_none.py",
    "tests/rmqsource/test_interleavings.py",
    "tests/store_core/config/test_config_database.py",
    "tests/store_core/contract/",
    "tests/store_core/crash/",
    "tests/store_core/ha/test_frame_reader.py",
    "tests/store_core/ha/test_ha_client.py",
    "tests/store_core/ha/test_ha_client_connections.py",
    "tests/store_core/ha/test_killed_slave.py",
    "tests/store_core/ha/test_replication.py",
    "tests/store_core/native/test_sanitized_kernel.py",
    "tests/store_core/recovery/test_damaged_queues.py",
    "tests/store_core/recovery/test_log_ends.py",
    "tests/store_core/schedule/test_killed_delivery.py",
    "tests/store_core/test_killed_writer.py",
    "tests/store_core/test_message_store_model.py",
    "tests/store_core/test_message_store_threads.py",
    "tests/store_core/test_power_loss.py",
    "tests/store_core/tools/check/test_advice.py",
    "tests/store_core/tools/repair/test_store_recovery.py",
    "tests/store_core/tools/salvage/test_damaged_stores.py",
    "tests/store_core/transaction/test_killed_transactions.py",
    "tests/test_notebooks.py",
)
"""Files and folders that start processes, kill them, or go through hundreds of cases, each of which
takes more than seven seconds."""

KEPT = frozenset(
    {
        "tests/rmqsource/cli/commands/test_explore.py::test_diff_says_by_its_code_whether_messages_differ",
        "tests/rmqsource/cli/commands/test_explore.py::test_export_checks_before_spark_starts",
        "tests/rmqsource/cli/test_filters.py::test_what_rocketmq_ignores_of_a_filter_is_told",
        "tests/rmqsource/cli/commands/test_follow.py::test_a_whole_copy_is_made_and_read",
        "tests/rmqsource/cli/commands/test_follow.py::test_json_lines_tell_how_far_it_is",
        "tests/rmqsource/cli/test_incident.py::test_delayed_and_overdue",
        "tests/rmqsource/cli/test_incident.py::test_segments",
        "tests/rmqsource/cli/commands/test_send_tail_cluster.py::TestSend",
        "tests/rmqsource/cli/test_tables.py::test_columns_are_chosen",
        "tests/rmqsource/cli/test_tables.py::test_wide_is_what_a_pipe_gets",
        "tests/rmqsource/test_bounded_memory.py::test_the_limit_is_an_option_that_the_error_names",
    }
)
"""Tests of those files that stay in the fast tier, because no other fast test uses their option."""

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
"""Twenty tests with Spark that use each path once: reads, filters, streams, writes, clusters."""

GOLDEN = frozenset({"onefile-5x", "classic-4x", "batch-5x", "ext-5x", "cluster-5x", "crashed-551"})
"""Golden stores of the fast tier: one of each kind."""


def mark(item: pytest.Item, golden_names: frozenset[str]) -> None:
    """Mark a test `full` if `make test` leaves it out."""
    place = item.nodeid
    is_left_out = place.startswith(FILES) and not _is_kept(place)
    if is_left_out or _is_more_spark(item) or _is_more_golden(item, golden_names):
        item.add_marker(pytest.mark.full)


def _is_kept(place: str) -> bool:
    name = place.partition("[")[0]
    return name in KEPT or name.rpartition("::")[0] in KEPT


def _is_more_spark(item: pytest.Item) -> bool:
    is_spark = item.get_closest_marker("spark") is not None
    return is_spark and item.nodeid.rpartition("/")[2] not in WALKS


def _is_more_golden(item: pytest.Item, golden_names: frozenset[str]) -> bool:
    given = getattr(getattr(item, "callspec", None), "params", {}).values()
    names = {value for value in given if isinstance(value, str)} & golden_names
    return bool(names) and not names <= GOLDEN
