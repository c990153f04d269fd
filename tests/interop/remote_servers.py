"""Servers that stores lie on: an S3-compatible one (s3proxy) and HDFS (Hadoop's minicluster).

Their jars come from Maven when they are first needed; both write below a directory of the test.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.java_oracle import one_at_a_time

SERVERS = Path(__file__).parent / "servers"
S3_KEY, S3_SECRET = "AKIAPLACES", "s3cr/et+Places"
BUCKET = "stores"
# The server knows none of the checksums that newer clients send with what they write.
S3_ENVIRONMENT = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
}
_BUILD_SECONDS = 600
_START_SECONDS = 60


@functools.cache
def jars(server: str) -> str:
    """Return the class path of a server."""
    directory = SERVERS / server
    with one_at_a_time(directory):
        libraries = directory / "target" / "lib"
        if not libraries.is_dir():
            making = directory / "target" / "making"
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
            subprocess.run(
                ["mvn", "-q", "-B", *goal, f"-DoutputDirectory={making}"],
                cwd=directory,
                check=True,
                timeout=_BUILD_SECONDS,
            )
            making.rename(libraries)
    return str(libraries / "*")


def s3_uri(address: str, store: str, *, with_key: bool = True) -> str:
    """Return the URI of a store in the bucket of a server, or of a proxy before it."""
    key = f"{S3_KEY}:{S3_SECRET.replace('/', '%2F').replace('+', '%2B')}@" if with_key else ""
    options = f"endpoint_override={address}&scheme=http&region=us-east-1"
    return f"s3://{key}{BUCKET}/{store}?{options}"


@contextmanager
def s3_server(directory: Path) -> Iterator[str]:
    """Run an S3-compatible server with an empty bucket; give its address."""
    os.environ.update(S3_ENVIRONMENT)
    port, data = _free_port(), directory / "s3"
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
    command = ["java", "-Xmx256m", f"-Dlogback.configurationFile={log}", "-cp", jars("s3")]
    command += ["org.gaul.s3proxy.Main", "--properties", str(settings)]
    with (directory / "s3proxy.log").open("wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        with process:
            try:
                _await_port(process, port)
                yield f"127.0.0.1:{port}"
            finally:
                process.terminate()


@contextmanager
def hdfs_server(directory: Path) -> Iterator[str]:
    """Run a name node and a data node; give the address of the former."""
    program = SERVERS / "hdfs" / "MiniHdfs.java"
    command = ["java", "-Xmx384m", "-cp", jars("hdfs"), str(program), str(directory / "hdfs")]
    with (directory / "hdfs.log").open("wb") as said:
        process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            try:
                lines = (line.split() for line in process.stdout)
                port = next((int(line[1]) for line in lines if line[:1] == [b"port"]), None)
                if port is None:
                    raise AssertionError((directory / "hdfs.log").read_text()[-2000:])
                yield f"127.0.0.1:{port}"
            finally:
                process.kill()


def upload(filesystem: Any, root: Path, target: str) -> None:
    """Copy a store to a ``pyarrow.fs`` filesystem."""
    from pyarrow.fs import LocalFileSystem, copy_files

    copy_files(str(root), target, LocalFileSystem(), filesystem, use_threads=True)


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
    raise AssertionError("the S3 server did not start")
