# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own store classes in a JVM: they write stores and report their content.

The program is in oracle/ (oracle/README.md); it is built with Maven when it is first needed.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import struct
import subprocess
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.class_archive import archive_classes, archive_options, listing_option, run

if TYPE_CHECKING:
    FilterQuestion = tuple[str, Sequence[Mapping[str, str]]]
    """An expression, and properties to evaluate it with."""

ORACLE = Path(__file__).parent / "oracle"
APIS = ("v5", "v4")
"""The adapters: RocketMQ 5.3.3 and 4.9.7."""
NEWEST = "v551"
"""The adapter for RocketMQ 5.5.1."""

_INT = struct.Struct(">i")
_TIMEOUT_SECONDS = 300
_BUILD_TIMEOUT_SECONDS = 900
# RocketMQ 4.x unmaps its files through these packages.
_OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.nio", "sun.nio.ch", "jdk.internal.ref")
]


class OracleError(Exception):
    """The program or its build ended with an error; the message has its output."""


def generate(profile: str, seed: int, out: Path, *, api: str | None = None) -> Path:
    """Write ``OUT/store`` and ``OUT/config.json``; return the store's path.

    Unless an adapter is named, the profile's ending (``-5x``, ``-4x``) picks the release.
    """
    _java(api or _api_of(profile), "generate", profile, str(seed), str(out))
    return out / "store"


def dump(store: Path, out: Path, *, api: str = "v5", keep: Path | None = None) -> Path:
    """Let RocketMQ open a copy of `store` and dump its content; return `out`.

    `keep` is where the copy goes as RocketMQ left it.
    """
    options = [f"-Doracle.keep={keep}"] if keep else []
    _java(api, "dump", str(store), str(out), options=options)
    return out


def check(
    store: Path,
    *,
    api: str = "v5",
    may_cut: bool = False,
    settings: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Open `store` in place; return the findings of RocketMQ and of the program.

    Key ``ok`` is the program's own verdict. `may_cut` allows recovery to cut off records;
    `settings` are more of RocketMQ's keys, beside those of ``config.json``.
    """
    options = ["-Doracle.mayCut=true"] if may_cut else []
    if settings:
        options.append("-Doracle.set=" + ",".join(f"{key}={settings[key]}" for key in settings))
    done = _run(api, "check", str(store), options=options)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise OracleError(_story(done))
    return {**json.loads(lines[-1]), "ok": done.returncode == 0}


def put(
    store: Path, count: int, seed: int, *, api: str = "v5", halt: bool = False
) -> dict[str, Any]:
    """Append `count` messages to topic ``TopicTest``, in place; return the range of offsets.

    `halt` ends the JVM after the last message without stopping the store.
    """
    options = ["-Doracle.halt=true"] if halt else []
    done = _java(api, "put", str(store), str(count), str(seed), options=options)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise OracleError(_story(done))
    result: dict[str, Any] = json.loads(lines[-1])
    return result


@contextmanager
def hold(store: Path, *, api: str = "v5") -> Iterator[subprocess.Popen[str]]:
    """Keep `store` open in a JVM for the length of the block; it is stopped cleanly."""
    with tempfile.TemporaryDirectory(prefix="oracle-logs-") as home:
        command = _command(api, home, [], "hold", str(store))
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            try:
                if not any(line.startswith("{") for line in process.stdout):
                    raise OracleError(f"RocketMQ does not open {store}")
                yield process
            finally:
                process.stdin.close()
                process.wait(_TIMEOUT_SECONDS)


@contextmanager
def feeding(store: Path, journal: Path, seed: int, *, api: str = "v5") -> Iterator[list[str]]:
    """Yield the command that puts and deletes as its standard input says."""
    with tempfile.TemporaryDirectory(prefix="oracle-logs-") as home:
        yield _command(api, home, [], "feed", str(store), str(journal), str(seed))


def tear(store: Path, seed: int, back: int) -> None:
    """Damage a crashed store from the first long enough record of its last `back` ones on."""
    _java("v5", "tear", str(store), str(seed), str(back))


def answer_filters(questions: Sequence[FilterQuestion], *, api: str = "v5") -> list[str]:
    """Evaluate with RocketMQ's SQL92: a text of T, F, N, E for each question, or ``P``."""
    with tempfile.TemporaryDirectory(prefix="oracle-filters-") as folder:
        asked, answers = Path(folder, "questions"), Path(folder, "answers")
        asked.write_bytes(b"".join(_question_parts(questions)))
        _java(api, "filters", str(asked), str(answers))
        return answers.read_text("ascii").splitlines()


def encode_anew(properties: Sequence[bytes], *, api: str = "v5") -> list[bytes]:
    """Let RocketMQ decode property strings and encode them again."""
    with tempfile.TemporaryDirectory(prefix="oracle-properties-") as folder:
        asked, answers = Path(folder, "questions"), Path(folder, "answers")
        asked.write_bytes(b"".join(b64encode(raw) + b"\n" for raw in properties))
        _java(api, "properties", str(asked), str(answers))
        return [b64decode(line) for line in answers.read_text("ascii").split("\n")[:-1]]


def _question_parts(questions: Sequence[FilterQuestion]) -> Iterator[bytes]:
    yield _INT.pack(len(questions))
    for expression, maps in questions:
        yield _text_bytes(expression)
        yield _INT.pack(len(maps))
        for properties in maps:
            yield _INT.pack(len(properties))
            for pair in properties.items():
                yield from map(_text_bytes, pair)


def _text_bytes(text: str) -> bytes:
    data = text.encode()
    return _INT.pack(len(data)) + data


@contextmanager
def one_at_a_time(directory: Path) -> Iterator[None]:
    """Keep other test processes from building in a directory at the same time."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@functools.cache
def build(api: str) -> Path:
    """Build one adapter's program unless its jar is newer than its sources; return the jar."""
    with one_at_a_time(ORACLE):
        return _build(api)


def _build(api: str) -> Path:
    jar = ORACLE / "target" / api / "oracle.jar"
    sources = [
        ORACLE / "pom.xml",
        *(ORACLE / "src").rglob("*.java"),
        *(ORACLE / api).rglob("*.java"),
    ]
    newest = max(path.stat().st_mtime for path in sources)
    libraries = jar.parent / "dependency"
    if jar.exists() and libraries.is_dir() and jar.stat().st_mtime >= newest:
        return jar
    profile = [] if api == "v5" else [f"-P{api}"]
    command = ["mvn", "-q", "-B", *profile, "package", "dependency:copy-dependencies"]
    done = _execute(command, cwd=ORACLE, timeout=_BUILD_TIMEOUT_SECONDS)
    if done.returncode or not jar.exists():
        raise OracleError(_story(done))
    with tempfile.TemporaryDirectory(prefix="oracle-first-") as home:
        listed, program = Path(home, "classes"), ["-jar", str(jar)]
        options = [listing_option(listed), *_options(home)]
        run(["java", *options, *program, "put", str(Path(home, "store")), "20", "1"])
        archive_classes(archive_of(jar), listed, program)
    return jar


def archive_of(jar: Path) -> Path:
    """Return the path of a program's class archive."""
    return jar.with_suffix(".jsa")


def _api_of(profile: str) -> str:
    return "v4" if profile.endswith("-4x") else "v5"


def _java(
    api: str, *arguments: str, options: list[str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = _run(api, *arguments, options=options)
    if done.returncode:
        raise OracleError(_story(done))
    return done


def _run(
    api: str, *arguments: str, options: list[str] | None = None
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(prefix="oracle-logs-") as home:
        command = _command(api, home, options or [], *arguments)
        return _execute(command, cwd=None, timeout=_TIMEOUT_SECONDS)


def _command(api: str, home: str, options: list[str], *arguments: str) -> list[str]:
    jar = build(api)
    given = [*archive_options(archive_of(jar)), *_options(home), *options]
    return ["java", *given, "-jar", str(jar), *arguments]


def _options(home: str) -> list[str]:
    """RocketMQ writes its logs below user.home, and names index files in the JVM's time zone."""
    return [f"-Duser.home={home}", "-Duser.timezone=UTC", *_OPENS]


def _execute(
    command: list[str], *, cwd: Path | None, timeout: float
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout,
        check=False,
    )


def _story(done: subprocess.CompletedProcess[str]) -> str:
    said = (done.stdout + done.stderr)[-4000:]
    return f"{' '.join(done.args)} ended with {done.returncode}:\n{said}"
