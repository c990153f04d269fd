# SPDX-License-Identifier: Apache-2.0
"""Messages of a topic by their places, as this project reads them and as a client pulls them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.interop.client_node import ClientNode, body_of
from tests.rmqsource.reading import read_rows

PLACE = ("queue_id", "queue_offset")
Placed = dict[tuple[int, int], tuple[int, str, bytes]]
"""Physical offset, message id and body by queue id and queue offset."""


def read_placed(root: Path, topic: str, **options: Any) -> Placed:
    """Return all messages of a read."""
    rows = read_rows(root, topic=topic, **options)
    found = {
        (row["queue_id"], row["queue_offset"]): (
            row["commit_log_offset"],
            row["message_id"],
            row["body"],
        )
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def pull_placed(client: ClientNode, topic: str, group: str) -> Placed:
    """Return all messages that a real client pulls."""
    return {
        (row["queue_id"], row["queue_offset"]): (
            row["commit_log_offset"],
            row["offset_msg_id"],
            body_of(row),
        )
        for row in client.pull_all(topic, group)
    }
