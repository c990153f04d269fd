# SPDX-License-Identifier: Apache-2.0
"""A standalone Spark cluster in processes and Python environments of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
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
from tests.interop.obedient_process import JsonNode, ProcessError
from tests.spark_home import link_all

JOBS = Path(__file__).with_name("cluster_jobs.py")
LOCALHOST = "127.0.0.1"
_START_SECONDS = 60
_RUN_SECONDS = 150
_POLL_SECONDS = 0.05
_OF_SOURCE = ("pyspark", "py4j", "numpy", "pyarrow")
"""Packages that a node requires in addition to the package itself."""
# For mapInArrow, which the jobs use. Releases of Spark differ in which of them they have.
_OF_JOBS = ("pandas", "python-dateutil", "pytz", "tzdata", "six")
_OF_CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos", "protobuf", "zstandard",
               "typing-extensions")  # fmt: skip
_SOURCES = ("rmqnet", "rmqsource", "store_core", "pyspark_rocketmq.py", "pyspark_rocketmq_store.py")
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME", "JDK_JAVA_OPTIONS")


class ClusterError(ProcessError):
    """A process of the cluster did not start, or a job failed; the message has its output."""


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
    """Create a Python environment and return its interpreter.

    Spark, numpy and Arrow are links to those of the tests: copies of them take a gigabyte. Spark's
    archive of its own Python modules is left out: each process would compile the modules it takes
    from there, while the environment has them compiled.

    Parameters
    ----------
    directory
        The directory of the environment.
    wheel
        The package's wheel; without it if None.
    connect
        Whether to add the packages that Spark Connect needs.
    """
    _run([sys.executable, "-m", "venv", "--without-pip", str(directory)])
    (packages,) = directory.glob("lib/python*/site-packages")
    wanted = {*_OF_SOURCE, *_OF_JOBS, *(_OF_CONNECT if connect else ())}
    for distribution in metadata.distributions():
        if distribution.metadata["Name"].lower().replace("_", "-") not in wanted:
            continue
        for top in {Path(str(file)).parts[0] for file in distribution.files or ()} - {".."}:
            if top == "pyspark":
                link_all(Path(str(distribution.locate_file(top))), packages / top, but="python")
            elif top != "__pycache__" and not (packages / top).exists():
                (packages / top).symlink_to(str(distribution.locate_file(top)))
    if wheel is not None:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
    return directory / "bin" / "python"


def spark_environment(python: Path, **more: str) -> dict[str, str]:
    """Return the environment variables of a machine whose ``python3`` is the given one."""
    (own,) = python.parent.parent.glob("lib/python*/site-packages/pyspark")
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        **kept,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_HOME": os.environ.get("SPARK_HOME", str(own)),
        "SPARK_LOCAL_IP": LOCALHOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": "python3",  # a name: each node uses its own
        "LC_ALL": "C.UTF-8",
        **more,
    }


def with_variables(
    directory: Path, variables: Mapping[str, str], command: Sequence[str]
) -> list[str]:
    """Return a command that runs another one elsewhere, with only these environment variables."""
    return [
        "env",
        "-i",
        "-C",
        str(directory),
        *(f"{name}={value}" for name, value in variables.items()),
        *command,
    ]


class LoggedProcess:
    """A process that logs when it is ready; leaving the block kills it."""

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
        """Process id."""
        return self._process.pid

    def __enter__(self) -> LoggedProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def log(self) -> str:
        """The log so far."""
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
        """End the process, and its children."""
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
        For the files of the processes.
    pythons
        Interpreters of the workers, by the workers' names.
    """

    def __init__(self, directory: Path, pythons: Mapping[str, Path]) -> None:
        self._directory, self._pythons = directory, pythons
        self._workers: dict[str, LoggedProcess] = {}

    def __enter__(self) -> SparkCluster:
        first = next(iter(self._pythons.values()))
        self._master = self._start(first, "master", "master.Master", LOCALHOST, [])
        try:
            self.url = self._master.wait_for(r"Starting Spark master at (spark://\S+)")
            for number, (name, python) in enumerate(self._pythons.items(), 1):
                host = f"127.0.0.{number}"  # Spark starts no second attempt on the same machine
                size = ["--cores", "1", "--memory", "512m"]
                place = ["--work-dir", str(self._directory / name), self.url]
                self._workers[name] = self._start(
                    python, name, "worker.Worker", host, [*size, *place]
                )
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

    def _start(
        self, python: Path, name: str, kind: str, host: str, arguments: list[str]
    ) -> LoggedProcess:
        variables = spark_environment(python, SPARK_LOCAL_IP=host)
        command = [f"{variables['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{kind}"]
        ports = ["--host", host, "--port", "0", "--webui-port", "0"]
        return LoggedProcess(self._directory, name, [*command, *ports, *arguments], variables)

    def executors(self, worker: str) -> list[int]:
        """Return the process ids of the executors that a worker runs now."""
        return children_of(self._workers[worker].process_id)

    def kill_executor(self, worker: str) -> None:
        """Kill the executor of a worker and its Python processes, as in a crash of both."""
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
        For the driver's files; its working directory.
    python
        The driver's interpreter.
    master
        URL of the cluster.
    settings
        Settings of the session.
    variables
        More environment variables.
    """

    def __init__(
        self,
        directory: Path,
        python: Path,
        master: str,
        settings: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        variables = {**spark_environment(python), **(variables or {})}
        all_settings = {**DRIVER_SETTINGS, **(settings or {})}
        options = [f"--conf={key}={value}" for key, value in all_settings.items()]
        variables["PYSPARK_SUBMIT_ARGS"] = shlex.join([*options, "pyspark-shell"])
        command = [str(python), str(JOBS), master]
        self.directory = directory
        command = with_variables(directory, variables, command)
        super().__init__(directory, command, error=ClusterError)

    def __enter__(self) -> ClusterDriver:
        return self


def submit(
    directory: Path,
    python: Path,
    master: str,
    arguments: Sequence[str],
    jobs: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Run jobs with ``spark-submit``; return the answer or the error of each.

    Parameters
    ----------
    directory
        For the driver's files; created here.
    python
        Interpreter of the driver and, where its path leads to one, of the executors.
    master
        URL of the cluster.
    arguments
        Arguments of ``spark-submit``.
    jobs
        Names and arguments of the jobs of `cluster_jobs`.
    """
    directory.mkdir()
    questions, answers = directory / "jobs", directory / "answers"
    questions.write_text("".join(json.dumps(job) + "\n" for job in jobs))
    variables = spark_environment(python, PYSPARK_PYTHON=str(python))
    options = [f"--conf={key}={value}" for key, value in DRIVER_SETTINGS.items()]
    command = [f"{variables['SPARK_HOME']}/bin/spark-submit", "--master", master, *options]
    program = [str(JOBS), master, str(questions), str(answers)]
    _run([*command, *arguments, *program], cwd=directory, variables=variables)
    return [json.loads(line) for line in answers.read_text().splitlines()]


DRIVER_SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.bindAddress": LOCALHOST,
    "spark.driver.host": LOCALHOST,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.task.maxFailures": "3",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "WARN",
}


def connect_server(
    directory: Path, python: Path, settings: Mapping[str, str] | None = None
) -> LoggedProcess:
    """Start a Spark Connect server of one core, as ``start-connect-server.sh`` does."""
    variables = spark_environment(python, SPARK_DAEMON_MEMORY="512m")
    all_settings = {
        **DRIVER_SETTINGS,
        "spark.log.level": "INFO",  # the port is logged at this level
        "spark.connect.grpc.binding.address": LOCALHOST,
        "spark.connect.grpc.binding.port": "0",
        **(settings or {}),
    }
    options = [f"--conf={key}={value}" for key, value in all_settings.items()]
    script = f"{variables['SPARK_HOME']}/bin/spark-submit"
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [script, "--class", server, "--master", "local[1]", *options]
    return LoggedProcess(directory, "connect-server", command, variables)


def connect_client(directory: Path, python: Path, server: LoggedProcess) -> ClusterDriver:
    """Start a client of a server, once the server is ready."""
    port = server.wait_for(r"Spark Connect server started at: \S*:(\d+)")
    return ClusterDriver(directory, python, f"sc://{LOCALHOST}:{port}")


def zip_sources(archive: Path) -> Path:
    """Pack the archive for ``--py-files`` with the command of docs/cluster.md."""
    text = (ROOT / "docs" / "cluster.md").read_text("utf-8")
    (command,) = re.findall(r"^python (-m zipfile -c) rmqsource\.zip (.+)$", text, re.MULTILINE)
    _run([sys.executable, *command[0].split(), str(archive), *command[1].split()], cwd=ROOT)
    return archive


def children_of(process_id: int) -> list[int]:
    """Return the running child processes of a process."""
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
    """Kill a process, as in a crash, if it still runs."""
    try:
        os.kill(process_id, signal.SIGKILL)
    except ProcessLookupError:
        return


def wait_until(condition: Any, what: str) -> None:
    """Wait until a function returns a true value."""
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(_POLL_SECONDS)


def _run(
    command: Sequence[str], cwd: Path | None = None, variables: Mapping[str, str] | None = None
) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=None if variables is None else dict(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
        check=False,
    )
    if done.returncode:
        raise ClusterError(f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
