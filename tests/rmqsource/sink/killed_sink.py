# SPDX-License-Identifier: Apache-2.0
"""A process that starts jobs and lets them die: ``python -m tests.rmqsource.sink.killed_sink``.

A job stages and commits as the tasks and the driver of a write do, without Spark.
"""

from __future__ import annotations

import os
import random
import signal
from typing import Any

from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.committing import commit_parts
from rmqsource.sink.options import parse_sink_options
from rmqsource.sink.prepared_write import plan_write
from rmqsource.sink.task import stage_part
from tests.rmqsource.sink.support import TYPES, batch_of
from tests.store_core.crash.killed_writer import Death, serve

SIZES = {
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
}
APPLICATION = "killed"
_COLUMNS = ("topic", "body", "keys", "tags")
_MOST_BODY_BYTES = 900


def rows_of(version: int) -> int:
    """Return the number of messages of a job: less than a segment, or several segments."""
    return random.Random(version).choice([1, 7, 30, 90])


def body_of(version: int, row: int) -> bytes:
    """Return the body of a message of a job."""
    text = b"%d/%d/" % (version, row)
    return text + b"." * random.Random(version << 20 | row).randrange(_MOST_BODY_BYTES)


def batches_of(version: int) -> list[Any]:
    """Return the rows of a job, a batch for each of its tasks."""
    rows = range(rows_of(version))
    parts = (rows[: len(rows) // 2], rows[len(rows) // 2 :])
    return [
        batch_of(
            topic=["TopicA" if row % 3 else "TopicB" for row in part],
            body=[body_of(version, row) for row in part],
            keys=[[f"k{version}-{row}", "all"] for row in part],
            tags=["even" if row % 2 == 0 else None for row in part],
        )
        for part in parts
    ]


def plan_of_job(root: str, options: dict[str, str] | None = None) -> Any:
    """Return the plan of a write of such rows, to a store of these sizes or of other options."""
    sizes = {key: str(value) for key, value in SIZES.items()}
    given = {"path": root, **(sizes if options is None else options)}
    columns = resolve_sink_columns([(name, TYPES[name][0]) for name in _COLUMNS])
    return plan_write(parse_sink_options(given), columns)


def write_job(
    root: str,
    version: int,
    seed: int,
    die_after: int,
    die_at: str = "",
    application: str = APPLICATION,
) -> None:
    """Stage and commit a job.

    Parameters
    ----------
    die_after
        Die at the n-th call that changes files; not at all if -1.
    die_at
        Die at the first such step of the commit; not at all if empty.
    """
    generator = random.Random(seed)
    if die_after >= 0:
        Death(die_after, generator).install()

    def hook(step: str) -> None:
        if step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    plan = plan_of_job(root)
    parts = [stage_part([batch], plan, number) for number, batch in enumerate(batches_of(version))]
    commit_parts(plan, parts, application=application, version=version, hook=hook)
    os._exit(0)


if __name__ == "__main__":
    serve(write_job)
