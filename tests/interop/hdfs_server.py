"""HDFS, as Hadoop's minicluster runs it: a name node and a data node in one JVM."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.s3_server import maven_jars, told_port

_PROJECT = Path(__file__).parent / "servers" / "hdfs"


@contextmanager
def hdfs_server(directory: Path) -> Iterator[str]:
    """Run it below a directory; give the address of the name node."""
    command = ["java", "-Xmx384m", "-cp", maven_jars(_PROJECT), str(_PROJECT / "MiniHdfs.java")]
    with (directory / "hdfs.log").open("wb") as said:
        process = subprocess.Popen(
            [*command, str(directory / "hdfs")],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
        )
        with process:
            try:
                yield f"127.0.0.1:{told_port(process)}"
            finally:
                process.kill()
