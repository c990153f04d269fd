"""A standalone Spark cluster of processes of their own, and Python environments of their own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.conftest import ROOT
from tests.interop.json_node import JsonNode
from tests.interop.obedient_process import ProcessError

JOBS = Path(__file__).with_name("cluster_jobs.py")
LOCALHOST = "127.0.0.1"
_START_SECONDS = 60
_POLL_SECONDS = 0.05
_NEEDED = ("pyspark", "py4j", "numpy", "pyarrow")
"""What a node must have beside the package itself."""
# Which of them there are differs between releases.
_OF_CONNECT = ("pandas", "grpcio", "grpcio-status", "googleapis-common-protos", "protobuf",
               "python-dateutil", "pytz", "tzdata", "six", "zstandard")  # fmt: skip
_SOURCES = ("rmqnet", "rmqsource", "store_core", "pyspark_rocketmq.py", "pyspark_rocketmq_store.py")
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME")


class ClusterError(ProcessError):
    """A process of the cluster did not come up, or a job failed; the message holds what it said."""


def build_wheel(directory: Path) -> Path:
    """Build the package's wheel from a copy of its sources, so that the clone stays clean."""
    sources = directory / "sources"
    sources.mkdir(parents=True)
    for name in (*_SOURCES, "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, sources / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet"]
    _run([*pip, "wheel", "--no-deps", "--wheel-dir", str(directory), str(sources)])
    (wheel,) = directory.glob("*.whl")
    return wheel


def make_environment(directory: Path, wheel: Path | None, *, connect: bool = False) -> Path:
    """Make a Python environment and return its interpreter.

    Spark, numpy and Arrow are links to those of the tests: copies of them take a gigabyte.

    Parameters
    ----------
    directory
        Of the environment.
    wheel
        Of the package; None: an environment without it.
    connect
        With what Spark Connect needs.
    """
    _run([sys.executable, "-m", "venv", "--without-pip", str(directory)])
    (packages,) = directory.glob("lib/python*/site-packages")
    wanted = {*_NEEDED, *(_OF_CONNECT if connect else ())}
    for distribution in metadata.distributions():
        if distribution.name.lower() not in wanted:
            continue
        for top in {Path(str(file)).parts[0] for file in distribution.files or ()} - {".."}:
            link = packages / top
            if top != "__pycache__" and not link.exists():
                link.symlink_to(str(distribution.locate_file(top)))
    if wheel is not None:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
    return directory / "bin" / "python"


def spark_environment(python: Path, **more: str) -> dict[str, str]:
    """Return the environment variables of a machine whose ``python3`` is the one given."""
    (spark_home,) = python.parent.parent.glob("lib/python*/site-packages/pyspark")
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        **kept,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": LOCALHOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": "python3",  # a name: each node takes its own
        "PYSPARK_DRIVER_PYTHON": str(python),
        "LC_ALL": "C.UTF-8",
        **more,
    }


def with_variables(variables: Mapping[str, str], command: Sequence[str]) -> list[str]:
    """Return a command that runs another one with these environment variables and no others."""
    return ["env", "-i", *(f"{name}={value}" for name, value in variables.items()), *command]


class LoggedProcess:
    """A process that says in its log when it is ready; leaving the block kills it."""

    def __init__(
        self, directory: Path, name: str, command: Sequence[str], variables: Mapping[str, str]
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def process_id(self) -> int:
        """Its id in this system."""
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text("utf-8", "replace")

    def wait_for(self, pattern: str) -> str:
        """Wait until the log matches a pattern; return its first group."""
        deadline = time.monotonic() + _START_SECONDS
        while (found := re.search(pattern, self.log)) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ClusterError(f"{self._log.name} never said {pattern}:\n{self.log[-4000:]}")
            time.sleep(_POLL_SECONDS)
        return found.group(1)

    def stop(self) -> None:
        """End it, and what it started."""
        children = children_of(self._process.pid)
        self._process.kill()
        self._process.wait()
        for child in children:
            kill(child)


class SparkCluster:
    """A master and workers, of one core and one executor each; a context manager.

    Parameters
    ----------
    directory
        Takes what the processes write.
    pythons
        Interpreters of the workers, by the workers' names.
    """

    def __init__(self, directory: Path, pythons: Mapping[str, Path]) -> None:
        self._directory, self._pythons = directory, pythons
        self._workers: dict[str, LoggedProcess] = {}

    def __enter__(self) -> SparkCluster:
        first = next(iter(self._pythons.values()))
        self._master = self._start(first, "master", "master.Master", [])
        try:
            self.url = self._master.wait_for(r"Starting Spark master at (spark://\S+)")
            for name, python in self._pythons.items():
                size = ["--cores", "1", "--memory", "512m"]
                place = ["--work-dir", str(self._directory / name), self.url]
                self._workers[name] = self._start(python, name, "worker.Worker", [*size, *place])
            for worker in self._workers.values():
                worker.wait_for(r"(Successfully registered with master)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        for process in (*self._workers.values(), self._master):
            process.stop()

    def _start(self, python: Path, name: str, kind: str, arguments: list[str]) -> LoggedProcess:
        variables = spark_environment(python)
        command = [f"{variables['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{kind}"]
        ports = ["--host", LOCALHOST, "--port", "0", "--webui-port", "0"]
        return LoggedProcess(self._directory, name, [*command, *ports, *arguments], variables)

    def executors(self, worker: str) -> list[int]:
        """Return the process ids of the executors that a worker runs now."""
        return children_of(self._workers[worker].process_id)

    def kill_executor(self, worker: str) -> None:
        """End the executor of a worker and its Python processes as a crash of both does."""
        (executor,) = self.executors(worker)
        children = children_of(executor)
        kill(executor)
        for child in children:
            for grandchild in children_of(child):
                kill(grandchild)
            kill(child)


class ClusterDriver(JsonNode):
    """A driver with a Spark session of its own that runs the jobs of `cluster_jobs`.

    Parameters
    ----------
    directory
        Takes what the driver writes.
    python
        Its interpreter.
    master
        URL of the cluster.
    settings
        Of the session.
    submit
        Arguments of ``spark-submit``, which then starts the driver; None: Python does.
    """

    def __init__(
        self,
        directory: Path,
        python: Path,
        master: str,
        settings: Mapping[str, str] | None = None,
        submit: Sequence[str] | None = None,
    ) -> None:
        variables = spark_environment(python)
        all_settings = {**DRIVER_SETTINGS, **(settings or {})}
        options = [f"--conf={key}={value}" for key, value in all_settings.items()]
        if submit is None:
            variables["PYSPARK_SUBMIT_ARGS"] = " ".join([*options, "pyspark-shell"])
            command = [str(python), str(JOBS), master]
        else:
            start = f"{variables['SPARK_HOME']}/bin/spark-submit"
            command = [start, "--master", master, *options, *submit, str(JOBS), master]
        super().__init__(directory, with_variables(variables, command), error=ClusterError)


DRIVER_SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.bindAddress": LOCALHOST,
    "spark.driver.host": LOCALHOST,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "WARN",
}


def zip_sources(archive: Path) -> Path:
    """Pack what ``--py-files`` must carry, as docs/cluster.md says."""
    _run(["zip", "-q", "-r", str(archive), *_SOURCES, "-x", "*__pycache__*"], cwd=ROOT)
    return archive


def children_of(process_id: int) -> list[int]:
    """Return the processes that a process started and that run."""
    return [child for child, parent in _parents() if parent == process_id]


def _parents() -> Iterator[tuple[int, int]]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, *_ = stat.read_text("utf-8", "replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            yield int(stat.parent.name), int(parent)


def kill(process_id: int) -> None:
    """End a process as a crash does, if it still runs."""
    try:
        os.kill(process_id, signal.SIGKILL)
    except ProcessLookupError:
        return


def wait_until(condition: Any, what: str) -> None:
    """Wait until a function returns something true."""
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(_POLL_SECONDS)


def _run(command: Sequence[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
