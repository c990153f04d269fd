# SPDX-License-Identifier: Apache-2.0
"""A real broker that compacts a topic: repeated keys, several queues, a log that has expired.

``python -m tests.interop.compacted_topic OUTDIR`` makes golden ``compacted-5x``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.interop.client_node import ClientNode, wait_until
from tests.interop.live_cluster import BROKER, LiveCluster

TOPIC, PLAIN_TOPIC = "prices", "stock"
QUEUES = 2
QUEUE_FILE_BYTES = 20 * 46
_UNIT = np.dtype(
    [
        ("offset", ">i8"),
        ("size", ">i4"),
        ("skip", "V16"),
        ("base", ">i8"),
        ("count", ">i2"),
        ("rest", "V8"),
    ]
)
_TIMEOUT_S = 90

SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 16_384,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "timerWheelEnable": "false",
    "compactionMappedFileSize": 9200,  # the broker rounds it to a multiple of the queue file
    "compactionCqMappedFileSize": QUEUE_FILE_BYTES,
    "compactionScheduleInternal": 500,
    "maxOffsetMapSize": 60_000,
    "cleanResourceInterval": 500,
    "deleteCommitLogFilesInterval": 1,
}
EXPIRE_AT_ONCE = {
    "fileReservedTime": 0,
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
}


def create_topics(client: ClientNode) -> None:
    """Create the compacted topic and a plain one, and a producer."""
    client.create_topic(TOPIC, QUEUES, attributes={"+cleanup.policy": "COMPACTION"})
    client.create_topic(PLAIN_TOPIC, QUEUES)
    client.start_producer("producer", "producers")


def send(client: ClientNode, keys: Sequence[str], round_name: str, topic: str = TOPIC) -> None:
    """Send a message for each key to each queue, with tags and properties."""
    for queue_id in range(QUEUES):
        messages = [
            {
                "keys": key,
                "tags": f"Tag{number % 3}",
                "body": f"{round_name} {key} in {queue_id}: {'x' * (number % 7)}",
                "properties": {"round": round_name, "number": str(number)},
            }
            for number, key in enumerate(keys)
        ]
        queue = {"topic": topic, "broker": BROKER, "queue_id": queue_id}
        client.send("producer", topic, messages=messages, queue=queue)


def is_settled(store: Path, ends: Mapping[int, int]) -> bool:
    """Return whether the broker has compacted all files except the last of each queue.

    And has put everything before the queue offsets in ``ends`` into the last file; ``ends`` is
    by queue.
    """
    try:
        found = {queue_id: _files(store, queue_id) for queue_id in ends}
        positions = _positions(store) if any(len(some) > 1 for some in found.values()) else {}
        return all(
            int(found[queue_id][-1].max()) >= end - 1
            and max((int(some.max()) for some in found[queue_id][:-1]), default=-1)
            <= positions.get(f"{TOPIC}_{queue_id}", -1)
            for queue_id, end in ends.items()
        )
    except (OSError, ValueError, IndexError):
        return False  # the broker is writing at this moment


def _positions(store: Path) -> dict[str, int]:
    """Return the queue offset up to which each queue is compacted."""
    text = (store / "compaction" / "position-checkpoint").read_text("utf-8")
    positions: dict[str, int] = json.loads(text)["queueOffsetMap"]
    return positions


def _files(store: Path, queue_id: int) -> list[npt.NDArray[np.int64]]:
    return _queue_offsets(store / "compaction" / "compactionCq" / TOPIC / str(queue_id))


def _queue_offsets(folder: Path) -> list[npt.NDArray[np.int64]]:
    """Return the queue offsets that units of each file of a sparse queue have."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    if any(len(path.name) != 20 for path in files):
        raise ValueError("files are being replaced")
    units = [np.frombuffer(path.read_bytes(), _UNIT) for path in files]
    return [some["base"][some["size"] > 0].astype(np.int64) for some in units]


def count_units(store: Path) -> int:
    """Return how many messages the compacted topic has."""
    return sum(len(some) for queue_id in range(QUEUES) for some in _files(store, queue_id))


def wait_settled(store: Path) -> None:
    """Wait until the broker has compacted as much as it can."""
    ends = dict.fromkeys(range(QUEUES), 0)
    assert wait_until(lambda: is_settled(store, ends), _TIMEOUT_S), "the broker did not compact"


def receive_all(client: ClientNode, group: str, count: int) -> list[dict[str, Any]]:
    """Return the messages that a new group receives of the compacted topic, from the first on."""
    client.start_consumer(group, group, {TOPIC: "*"}, from_where="FIRST", orderly=True)
    client.wait_received(group, count, _TIMEOUT_S)
    return client.close_consumer(group)


def expire_log(client: ClientNode, store: Path) -> None:
    """Let the broker delete all segments of its commit log except the last, and one made ahead."""
    client.ask("update_broker_config", settings={k: str(v) for k, v in EXPIRE_AT_ONCE.items()})
    log = store / "commitlog"
    done = wait_until(lambda: len(list(log.iterdir())) <= 2, _TIMEOUT_S)
    client.ask("update_broker_config", settings={"fileReservedTime": "100000"})
    assert done, sorted(path.name for path in log.iterdir())


def _make(out: Path, work: Path) -> None:
    with LiveCluster(work, settings=SETTINGS) as cluster:
        store = cluster.store()
        with ClientNode(work / "client", "5.3.3", cluster.namesrv_addr) as client:
            create_topics(client)
            send(client, [f"once-{i}" for i in range(5)], "first")
            for number in range(6):
                send(client, [f"item-{i}" for i in range(12)], f"round-{number}")
            wait_settled(store)
            send(client, [f"more-{i}" for i in range(8)], "later", PLAIN_TOPIC)
            expire_log(client, store)
            send(client, [f"item-{i % 4}" for i in range(7)], "tail")
            wait_settled(store)
            received = receive_all(client, "all_of_it", count_units(store))
            stats = client.ask("topic_stats", topic=TOPIC)
        cluster.stop_broker()
    out.mkdir(parents=True, exist_ok=True)
    (out / "received.jsonl").write_text("".join(json.dumps(row) + "\n" for row in received))
    (out / "topic_stats.json").write_text(json.dumps(stats, indent=1) + "\n")
    script = (
        "tar --sort=name --owner=0 --group=0 --numeric-owner --transform s/^broker-a/store/ "
        '-C "$1" -cSf - broker-a | gzip -9n > "$2"'
    )
    subprocess.run(["sh", "-c", script, "sh", store.parent, out / "store.tar.gz"], check=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        _make(Path(sys.argv[1]), Path(folder))
