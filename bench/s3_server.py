# SPDX-License-Identifier: Apache-2.0
"""An S3-compatible server (s3proxy, from Maven) on this machine, and a simulated network."""

from __future__ import annotations

import fcntl
import functools
import os
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVERS = Path(__file__).parent / "servers"
S3_KEY, S3_SECRET = "AKIAPLACES", "s3cr/et+Places"
BUCKET = "stores"
_BUILD_SECONDS = 600
_START_SECONDS = 60
# The server supports none of the checksums that newer clients send with writes.
_ENVIRONMENT = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
}


def s3_uri(address: str, store: str, *, with_key: bool = True) -> str:
    """Return the URI of a store in the bucket at the address of a server or of its network."""
    key = f"{S3_KEY}:{S3_SECRET.replace('/', '%2F').replace('+', '%2B')}@" if with_key else ""
    options = f"endpoint_override={address}&scheme=http&region=us-east-1"
    return f"s3://{key}{BUCKET}/{store}?{options}"


@contextmanager
def s3_server(directory: Path) -> Iterator[str]:
    """Run a server with an empty bucket below a directory; yield its address."""
    os.environ.update(_ENVIRONMENT)
    port, data = _free_port(), directory.resolve() / "s3"
    (data / BUCKET).mkdir(parents=True)
    settings = directory / "s3proxy.conf"
    settings.write_text(
        f"s3proxy.endpoint=http://127.0.0.1:{port}\n"
        "s3proxy.authorization=aws-v2-or-v4\n"
        "s3proxy.ignore-unknown-headers=true\n"
        f"s3proxy.identity={S3_KEY}\n"
        f"s3proxy.credential={S3_SECRET}\n"
        "jclouds.provider=filesystem-nio2\n"
        "jclouds.identity=local\n"
        "jclouds.credential=local\n"
        f"jclouds.filesystem.basedir={data}\n"
    )
    log = SERVERS / "s3" / "logback.xml"
    command = ["java", "-Xmx256m", f"-Dlogback.configurationFile={log}"]
    command += ["-cp", maven_jars(SERVERS / "s3"), "org.gaul.s3proxy.Main"]
    with (directory / "s3proxy.log").open("wb") as said:
        process = subprocess.Popen(
            [*command, "--properties", str(settings)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
        with process:
            try:
                _await_port(process, port)
                yield f"127.0.0.1:{port}"
            finally:
                process.terminate()


@contextmanager
def slow_link(address: str, wait_ms: int, bytes_a_second: int) -> Iterator[str]:
    """Simulate a network in front of a server; yield the address to use.

    Parameters
    ----------
    wait_ms
        Delay of each request.
    bytes_a_second
        Rate of each connection; 0 for no limit.
    """
    program = str(SERVERS / "SlowLink.java")
    port = address.rpartition(":")[2]
    command = ["java", "-Xmx128m", program, port, str(wait_ms), str(bytes_a_second)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        try:
            yield f"127.0.0.1:{told_port(process)}"
        finally:
            process.kill()


def told_port(process: subprocess.Popen[bytes]) -> int:
    """Return the port that a server prints when it listens."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(b"port "):
            return int(line.split()[1])
    raise RuntimeError(f"{process.args!r} did not start")


def upload(filesystem: Any, root: Path, target: str) -> None:
    """Copy a directory to a ``pyarrow.fs`` filesystem."""
    from pyarrow.fs import LocalFileSystem, copy_files  # noqa: PLC0415 (loaded where it is used)

    copy_files(str(root), target, LocalFileSystem(), filesystem, use_threads=True)


@functools.cache
def maven_jars(project: Path) -> str:
    """Return the class path of the libraries in a project's pom.xml, fetched at the first use."""
    handle = os.open(project, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # other processes wait
        libraries, making = project / "target" / "lib", project / "target" / "making"
        if not libraries.is_dir():
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
            subprocess.run(
                ["mvn", "-q", "-B", *goal, f"-DoutputDirectory={making}"],
                cwd=project,
                check=True,
                timeout=_BUILD_SECONDS,
            )
            making.rename(libraries)
    finally:
        os.close(handle)
    return str(libraries / "*")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_port(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("the S3 server did not start")
