"""What a broker must find below ``config`` to serve a job's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqsource.sink.local_host import now_ms
from store_core.config.config_writing import merge_delay_offsets, merge_topics
from store_core.layout.message import SCHEDULE_TOPIC
from store_core.topics import topic_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqsource.sink.write_plan import SinkPlan
    from store_core.staged_commit.crash_points import CrashPoints
    from store_core.staged_commit.job import StagedJob

_NOTED_KINDS = frozenset({"normal", "retry", "dlq"})  # a broker makes the others itself


def note_topics(plan: SinkPlan, job: StagedJob, steps: CrashPoints) -> None:
    """Make the topics of a job known, with as many queues as it uses."""
    queues: dict[str, int] = {}
    for part in job.parts:
        for topic, count in part.topics:
            if topic_kind(topic) in _NOTED_KINDS:
                queues[topic] = max(queues.get(topic, 0), count)

    def replace(path: str, data: bytes) -> None:
        steps.replace_file("topics", path, data)

    merge_topics(plan.options.path, queues, now_ms(), replace)


def note_delays(
    plan: SinkPlan, job: StagedJob, next_offsets: Mapping[tuple[str, int], int], steps: CrashPoints
) -> None:
    """Note that what the job delays waits, and that what it copied does not wait any more.

    Done before the messages are in the log: a level may point after its queue, but a message that
    was delivered long ago must not be delivered again.
    """
    waiting = {level for part in job.parts for level in part.delay_levels}
    offsets: dict[int, tuple[int, int]] = {}
    for queue in job.queue_ranges(next_offsets):
        if queue.topic == SCHEDULE_TOPIC:
            level, end = queue.queue_id + 1, queue.first_queue_offset
            offsets[level] = (end, end if level in waiting else end + queue.messages)

    def replace(path: str, data: bytes) -> None:
        steps.replace_file("delay offsets", path, data)

    merge_delay_offsets(plan.options.path, offsets, now_ms(), replace)
