# SPDX-License-Identifier: Apache-2.0
"""Timer messages of a broker: soon due, far ahead, going round, cancelled; and who received them.

``python -m tests.interop.timed_topic OUT`` makes a new tests/golden/timers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rmqnet import Message, Producer
from tests.interop.client_node import ClientNode
from tests.interop.live_cluster import LiveCluster

TOPIC = "alarms"
NEAR, CANCELLED_NEAR, ROUND = "near", "cancelled-near", "round"
FAR, CANCELLED_FAR, LAST = "far", "cancelled-far", "last"
EACH = 4
DELIVERED = [f"{kind}-{number}" for kind in (NEAR, ROUND) for number in range(EACH)]
SETTINGS = {
    "timerRollWindowSlot": 6,  # seconds: messages farther ahead go round
    "mappedFileSizeTimerLog": 16 + 52 * 20,
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "timerFlushIntervalMs": 200,
}
_HOUR_MS = 3_600_000
_TIMEOUT_S = 60.0


class Sender:
    """Sends timer messages; their names are their keys."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.unique: dict[str, str] = {}

    def send(self, name: str, deliver_ms: int) -> None:
        """Send one message that is due at a given time."""
        properties = {"TIMER_DELIVER_MS": str(deliver_ms)}
        message = Message(TOPIC, name.encode(), keys=name, properties=properties)
        self.unique[name] = self._producer.send(message).message_id

    def cancel(self, name: str, deliver_ms: int) -> None:
        """Cancel a message that is due at that time."""
        properties = {
            "TIMER_DELIVER_MS": str(deliver_ms),
            "TIMER_DEL_UNIQKEY": f"{TOPIC}+{self.unique[name]}",
        }
        self._producer.send(Message(TOPIC, b"cancels", properties=properties))


def send_all(sender: Sender) -> None:
    """Send all messages except the last one; the near ones are due in two to nine seconds."""
    now = int(time.time() * 1000)
    for number in range(EACH):
        sender.send(f"{NEAR}-{number}", now + 2500 + 500 * number)
        sender.send(f"{CANCELLED_NEAR}-{number}", now + 4000)
        sender.send(f"{ROUND}-{number}", now + 8500)
        sender.send(f"{FAR}-{number}", now + _HOUR_MS)
        sender.send(f"{CANCELLED_FAR}-{number}", now + _HOUR_MS)
    for number in range(EACH):
        sender.cancel(f"{CANCELLED_NEAR}-{number}", now + 4000)
        sender.cancel(f"{CANCELLED_FAR}-{number}", now + _HOUR_MS)


def send_last(sender: Sender) -> None:
    """Send a message that is due after the broker ends, without going round."""
    now = int(time.time() * 1000)
    for number in range(EACH):
        sender.send(f"{LAST}-{number}", now + 5500)


def receive(client: ClientNode, count: int) -> list[dict[str, Any]]:
    """Return the messages that a new group receives, from the first one on."""
    client.start_consumer("all", "all_of_it", {TOPIC: "*"}, from_where="FIRST")
    client.wait_received("all", count, _TIMEOUT_S)
    return client.close_consumer("all")


def play(cluster: LiveCluster, directory: Path) -> list[dict[str, Any]]:
    """Send and receive; the other messages still wait on return."""
    with ClientNode(directory, "5.3.3", cluster.namesrv_addr) as client:
        client.create_topic(TOPIC, 1)
        with Producer("senders", cluster.namesrv_addr) as producer:
            sender = Sender(producer)
            send_all(sender)
            received = receive(client, len(DELIVERED))
            send_last(sender)
            time.sleep(1)  # until they are enqueued, and the checkpoint says so
    return received


def _make(out: Path, work: Path, *, clean: bool) -> None:
    with LiveCluster(work, settings=SETTINGS) as cluster:
        received = play(cluster, work / "client")
        cluster.stop_broker() if clean else cluster.kill_broker()
        store = cluster.store()
    out.mkdir(parents=True, exist_ok=True)
    (out / "received.jsonl").write_text("".join(json.dumps(row) + "\n" for row in received))
    script = (
        "tar --sort=name --owner=0 --group=0 --numeric-owner --transform s/^broker-a/store/ "
        '-C "$1" -cSf - broker-a | gzip -9n > "$2"'
    )
    subprocess.run(["sh", "-c", script, "sh", store.parent, out / "store.tar.gz"], check=True)


if __name__ == "__main__":
    for name, is_clean in (("stopped-5x", True), ("killed-5x", False)):
        with tempfile.TemporaryDirectory() as folder:
            _make(Path(sys.argv[1]) / name, Path(folder), clean=is_clean)
