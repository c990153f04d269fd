# SPDX-License-Identifier: Apache-2.0
"""A complete RocketMQ in a JVM: name server, broker and clients, on an existing store.

The program is in oracle/cluster (see its README.md); Maven builds it when it is first needed.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.class_archive import archive_classes, archive_options, listing_option, run
from tests.interop.java_oracle import OracleError, archive_of, one_at_a_time

CLUSTER = Path(__file__).parent / "oracle" / "cluster"
RELEASES = ("5.3.3", "4.9.7")
NEWEST = "5.5.1"
"""The newest released broker and store, with the clients of 5.5.0."""
ALL_RELEASES = (*RELEASES, NEWEST)

_PROFILES = {"5.3.3": (), "4.9.7": ("-Procketmq4",), NEWEST: ("-Procketmq55",)}
_OUTPUTS = {"5.3.3": "compat5", "4.9.7": "compat4", NEWEST: "newest"}

_BUILD_TIMEOUT_SECONDS = 900
_LIMIT_SECONDS = 300
_SAID = 4000
# Below the ports that systems assign themselves, so that they stay free until they are used.
_FIRST_PORT, _LAST_PORT = 11_000, 30_000
# Each test process has a quarter of them: a port that another process chose may not be in use yet.
_QUARTER = (_LAST_PORT - _FIRST_PORT) // 4
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 4
# A broker on port P listens on P - 2 and P + 1, too.
_BELOW, _ABOVE = 2, 1
_PORTS = range(
    _FIRST_PORT + _WORKER * _QUARTER + _BELOW,
    _FIRST_PORT + (_WORKER + 1) * _QUARTER - _ABOVE,
    _BELOW + 1 + _ABOVE,
)
# No port is returned again before all others were: its user may not listen on it yet.
_next_ports = itertools.cycle(random.sample(_PORTS, len(_PORTS)))


@dataclass(frozen=True)
class Served:
    """What a broker and its clients did with a store."""

    ok: bool
    """Everything happened as the options asked for."""
    events: list[dict[str, Any]]
    """The program's events, in order."""
    received: list[dict[str, Any]]
    """Each message that a consumer got; ``mode`` is PULL, or CLUSTERING for groups that listen."""
    sent: list[dict[str, Any]]
    """Each message that a producer sent, in order."""
    said: str
    """The end of all output, for the message of a failure."""

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of one kind, in order."""
        return [event for event in self.events if event["event"] == kind]


class Broker:
    """Serves a store in place, then stops cleanly; it starts immediately and runs on its own.

    Leaving the block ends the process in any case.

    Parameters
    ----------
    store
        The store root.
    directory
        For files that the program writes outside the store.
    release
        One of `RELEASES`.
    settings
        The broker's settings, by RocketMQ's keys; ``listenPort`` comes from `free_port`.
    options
        Options of command ``serve``, without their dashes.
    """

    def __init__(
        self,
        store: Path,
        directory: Path,
        release: str,
        settings: Mapping[str, Any],
        options: Mapping[str, str],
    ) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        given = {
            "port": str(settings["listenPort"]),
            "limit": str(_LIMIT_SECONDS),
            "received": str(directory / "received.jsonl"),
            "sent": str(directory / "sent.jsonl"),
            **options,
        }
        command = [*java_options(directory, release), "serve", str(store)]
        for name, value in given.items():
            command += [f"--{name}", value]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        with (directory / "out").open("wb") as out, (directory / "err").open("wb") as err:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "LC_ALL": "C.UTF-8"},  # some arguments are not ASCII
            )

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def wait(self) -> Served:
        """Return what happened, once the broker has stopped.

        Raises
        ------
        OracleError
            The process did not serve, or did not stop.
        """
        try:
            status = self._process.wait(_LIMIT_SECONDS + 10)
        except subprocess.TimeoutExpired as err:
            raise OracleError(self._said()) from err
        events = self._lines("out")
        if not events or events[-1]["event"] != "done":
            raise OracleError(f"ended with {status}:\n{self._said()}")
        received, sent = self._lines("received.jsonl"), self._lines("sent.jsonl")
        return Served(status == 0, events, received, sent, self._said())

    def ready(self) -> dict[str, Any]:
        """Return the program's first event, which says that clients can connect.

        Raises
        ------
        OracleError
            It has ended, or has not said so in time.
        """
        deadline = time.monotonic() + _LIMIT_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            whole = (self._directory / "out").read_text("utf-8").rpartition("\n")[0]
            for line in whole.split("\n"):
                if line.startswith('{"event":"ready"'):
                    event: dict[str, Any] = json.loads(line)
                    return event
            time.sleep(0.1)
        raise OracleError(self._said())

    def _lines(self, name: str) -> list[dict[str, Any]]:
        text = (self._directory / name).read_text("utf-8")
        return [json.loads(line) for line in text.split("\n") if line.startswith("{")]

    def _said(self) -> str:
        texts = [(self._directory / name).read_text("utf-8", "replace") for name in ("out", "err")]
        return "\n".join(text[-_SAID:] for text in texts)


def java_options(directory: Path, release: str, properties: Sequence[str] = ()) -> list[str]:
    """Return the command that starts the program; files outside stores go below a folder.

    RocketMQ writes below user.home, and names index files in the JVM's time zone. Servers use TLS
    only if `properties` say so: without a certificate each server generates keys at its start, two
    in a broker, which takes seconds.
    """
    jar = build(release)
    given = [
        *archive_options(archive_of(jar)),
        *_fixed_options(directory),
        *(f"-D{each}" for each in properties),
    ]
    return ["java", *given, "-jar", str(jar)]


def _fixed_options(directory: Path) -> list[str]:
    return [
        "-Xmx512m",
        f"-Duser.home={directory}",
        f"-Djava.io.tmpdir={directory}",
        "-Duser.timezone=UTC",
        "-Dfile.encoding=UTF-8",
        "-Dtls.server.mode=disabled",
    ]


@functools.cache
def build(release: str) -> Path:
    """Build one release's program unless its jar is newer than its sources; return the jar."""
    with one_at_a_time(CLUSTER):
        return _build(release)


def _build(release: str) -> Path:
    jar = CLUSTER / "target" / _OUTPUTS[release] / "cluster.jar"
    newest = max(
        path.stat().st_mtime for path in [CLUSTER / "pom.xml", *(CLUSTER / "src").rglob("*.*")]
    )
    libraries = jar.parent / "dependency"
    if jar.exists() and libraries.is_dir() and jar.stat().st_mtime >= newest:
        return jar
    done = subprocess.run(
        ["mvn", "-q", "-B", *_PROFILES[release], "package", "dependency:copy-dependencies"],
        cwd=CLUSTER,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=_BUILD_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode or not jar.exists():
        raise OracleError(
            f"mvn ended with {done.returncode}:\n{(done.stdout + done.stderr)[-_SAID:]}"
        )
    _archive_classes(jar)
    return jar


def _archive_classes(jar: Path) -> None:
    """Run a name server, a broker and clients of each kind once, with some work."""
    with tempfile.TemporaryDirectory(prefix="cluster-first-") as folder:
        topic, store, listed = "First", Path(folder, "store"), Path(folder, "classes")
        store.mkdir()
        program = ["-jar", str(jar)]
        options = [listing_option(listed), *_fixed_options(Path(folder))]
        given = ["--port", str(free_port()), "--topics", topic, "--send", f"{topic}=20"]
        given += ["--push", f"{topic}:*=0"]
        run(["java", *options, *program, "serve", str(store), *given], until='{"event":"sent"')
        archive_classes(archive_of(jar), listed, program)


def free_port() -> int:
    """Return a port that is free, as are a broker's other two, and that was not given to others."""
    for port in itertools.islice(_next_ports, 100):
        if all(_is_free(each) for each in (port - _BELOW, port, port + _ABOVE)):
            return port
    raise OracleError("no port is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
