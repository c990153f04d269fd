# SPDX-License-Identifier: Apache-2.0
"""Record what real masters and slaves send: ``python -m tests.interop.record_replication OUTDIR``.

It writes the files that tests/golden/replication/README.md describes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from store_core.layout import REPORT, TRANSFER_HEADER
from tests.interop import java_cluster
from tests.interop.java_cluster import RELEASES, free_port
from tests.interop.replica import JavaReplica

SEGMENT = 65_536
HEARTBEAT_MS = 500
SETTINGS = {
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": 2_000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "haSendHeartbeatInterval": HEARTBEAT_MS,
}
_MESSAGES = 150
_MORE = 60
_HEARTBEATS = 2
_SECONDS = 20.0


class Peer:
    """A socket that reports to a real master and records each frame."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_SECONDS)
        self._since = time.monotonic()
        self.steps: list[dict[str, Any]] = []

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def report(self, *offsets: int) -> None:
        """Send reports in one piece."""
        self._socket.sendall(b"".join(REPORT.pack(max_offset=offset) for offset in offsets))
        self.steps.append({"report": list(offsets)})
        self._since = time.monotonic()

    def receive(self, end: int) -> None:
        """Record frames until the log has reached an offset."""
        while self._frame() < end:
            pass

    def receive_heartbeats(self) -> None:
        """Record some frames, and check that they are heartbeats."""
        for _ in range(_HEARTBEATS):
            self._frame()

    def receive_end(self) -> None:
        """Record frames until the master ends the connection."""
        try:
            while True:
                self._frame()
        except (EOFError, ConnectionResetError):
            self.steps.append({"closed": True})

    def _frame(self) -> int:
        header = TRANSFER_HEADER.unpack(self._read(TRANSFER_HEADER.size))
        body = self._read(header.body_size)
        now = time.monotonic()
        if not body:
            ms = round(1000 * (now - self._since))
            self.steps.append({"heartbeat": header.offset, "after_ms": ms})
        else:
            digest = hashlib.sha256(body).hexdigest()
            self.steps.append({"frame": [header.offset, header.body_size, digest]})
        self._since = now
        end: int = header.offset + header.body_size
        return end

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data


class MasterRecording:
    """Plays all scenarios against a master of one release."""

    def __init__(self, release: str, out: Path, scratch: Path) -> None:
        self._out, self._scratch = out, scratch
        self._root, self._port = scratch / "store", free_port()
        self._java = JavaReplica(scratch / "java", release)
        self._end = 0
        self.scenarios: list[dict[str, Any]] = []

    def record(self) -> None:
        """Play the scenarios; write the store and the frames that came."""
        with self._java:
            self._java.open_master(self._root, self._port, **SETTINGS)
            self._end = self._java.put(_MESSAGES, 1)["max_phy_offset"]
            self._java.stop()
            _pack(self._scratch, self._out / "store.tar.gz")
            self._java.open_master(self._root, self._port, **SETTINGS)
            self._record_starts()
            self._java.stop()
            self._java.open_master(
                self._root, self._port, **{**SETTINGS, "haTransferBatchSize": 1_000}
            )
            self._record("small_batches", [SEGMENT + 100], haTransferBatchSize=1_000)
            self._java.stop()
            self._record_deleted_segment()
            self._record_more()
        log = b"".join(path.read_bytes() for path in sorted((self._root / "commitlog").iterdir()))
        more = log[self._end : self.scenarios[-1]["log_end_after"]]
        (self._out / "more.bin.gz").write_bytes(gzip.compress(more, 9, mtime=0))
        _write(self._out / "frames.json", {"settings": SETTINGS, "scenarios": self.scenarios})

    def _record_starts(self) -> None:
        end, middle = self._end, SEGMENT + SEGMENT // 2
        self._record("first_report_0", [0])
        self._record("from_the_first_byte_but_one", [1])
        self._record("start_of_a_segment", [SEGMENT])
        self._record("middle_of_a_record", [middle + 1])
        self._record("only_the_last_of_reports_in_one_piece_counts", [1, 7, middle])
        self._record("at_the_end", [end])
        self._record_late_report(middle)
        self._record_ahead()

    def _record(self, name: str, reports: list[int], **settings: int) -> None:
        with Peer(self._port) as peer:
            peer.report(*reports)
            if reports[-1] < self._end:
                peer.receive(self._end)
            peer.receive_heartbeats()
            self._note(name, peer, settings=settings)

    def _record_late_report(self, offset: int) -> None:
        """A heartbeat is due before the first report, so it comes before the first data."""
        with Peer(self._port) as peer:
            time.sleep(3 * HEARTBEAT_MS / 1000)
            peer.report(offset)
            peer.receive(self._end)
            self._note("late_first_report", peer)

    def _record_ahead(self) -> None:
        with Peer(self._port) as peer:
            peer.report(self._end + 100)
            peer.receive_heartbeats()
            self._note("beyond_the_end", peer)
        with Peer(self._port) as peer:
            peer.report(self._end)
            peer.receive_heartbeats()
            peer.report(self._end + 100)
            if self._java.release == "4.9.7":
                peer.receive_end()
            else:
                peer.receive_heartbeats()
            self._note("later_report_beyond_the_end", peer)

    def _record_deleted_segment(self) -> None:
        first = self._root / "commitlog" / f"{0:020}"
        kept = first.read_bytes()
        first.unlink()
        self._java.open_master(self._root, self._port, **SETTINGS)
        with Peer(self._port) as peer:
            peer.report(100)
            peer.receive_heartbeats()
            self._note("in_a_deleted_segment", peer, first_segment=SEGMENT)
        self._java.stop()
        first.write_bytes(kept)

    def _record_more(self) -> None:
        """Put one message after another until a segment is full."""
        self._java.open_master(self._root, self._port, **SETTINGS)
        with Peer(self._port) as peer:
            peer.report(self._end)
            peer.receive_heartbeats()
            for number in range(_MORE):
                end = self._java.put(1, 1_000 + number)["max_phy_offset"]
                peer.steps.append({"log_end": end})
                peer.receive(end)
            self._note("more_afterwards", peer, log_end_after=end)
        assert end // SEGMENT > self._end // SEGMENT
        self._java.stop()

    def _note(self, name: str, peer: Peer, **facts: Any) -> None:
        facts = {key: value for key, value in facts.items() if value}
        self.scenarios.append({"name": name, "log_end": self._end, **facts, "steps": peer.steps})


def record_reports(release: str, log: bytes, out: Path, scratch: Path) -> None:
    """Send parts of a log to a real slave, first empty and then restarted; record its reports."""
    with JavaReplica(scratch / "slave", release) as java:
        steps: dict[str, Any] = {}
        root = scratch / "slave-store"
        for name, frames in (
            ("empty", [(0, 32_768), (32_768, 32_768), (65_536, 1_000), (66_536, 7)]),
            ("restarted", None),
        ):
            with socket.create_server(("127.0.0.1", 0)) as server:
                server.settimeout(_SECONDS)
                port = server.getsockname()[1]
                java.open_slave(root, f"127.0.0.1:{port}", free_port(), **SETTINGS, nudge=0)
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(_SECONDS)
                    steps[name] = _reports(connection, log, frames)
                java.stop()
    _write(out / "reports.json", {"settings": SETTINGS, "steps": steps})


def _reports(
    connection: socket.socket, log: bytes, frames: list[tuple[int, int]] | None
) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    since = time.monotonic()

    def report() -> int:
        nonlocal since
        data = b""
        while len(data) < REPORT.size:
            data += connection.recv(REPORT.size - len(data))
        now = time.monotonic()
        offset: int = REPORT.unpack(data).max_offset
        steps.append({"report": offset, "after_ms": round(1000 * (now - since))})
        since = now
        return offset

    at = report()
    if frames is None:
        frames = [(at, 20_000), (at + 20_000, 0), (at + 20_000, 500)]
    for offset, size in frames:
        header = TRANSFER_HEADER.pack(offset=offset, body_size=size)
        connection.sendall(header + log[offset : offset + size])
        steps.append({"frame": [offset, size]})
        while size and report() < offset + size:
            pass
    for _ in range(_HEARTBEATS):
        report()
        # A slave disconnects from a master that is silent.
        connection.sendall(TRANSFER_HEADER.pack(offset=offset + size, body_size=0))
        steps.append({"frame": [offset + size, 0]})
    return steps


def _pack(directory: Path, target: Path) -> None:
    command = ["tar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]
    raw = subprocess.run(
        [*command, "-C", str(directory), "-cf", "-", "store"], check=True, capture_output=True
    )
    target.write_bytes(gzip.compress(raw.stdout, 9, mtime=0))


def _write(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1)
    path.write_text(text + "\n", "utf-8")


def main(out: str) -> None:
    """Record for all releases."""
    for release in RELEASES:
        java_cluster.build(release)
        directory, scratch = Path(out, release), Path(tempfile.mkdtemp())
        directory.mkdir(parents=True, exist_ok=True)
        MasterRecording(release, directory, scratch).record()
        segments = sorted((scratch / "store" / "commitlog").iterdir())
        log = b"".join(path.read_bytes() for path in segments)
        record_reports(release, log, directory, scratch)
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main(*sys.argv[1:])
