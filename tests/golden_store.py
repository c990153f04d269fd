# SPDX-License-Identifier: Apache-2.0
"""The golden stores of tests/golden: unpacked once per run, with their dumps and sizes."""

from __future__ import annotations

import atexit
import functools
import gzip
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOLDEN_DIR = Path(__file__).parent / "golden"
GOLDEN_NAMES = tuple(sorted(path.parent.name for path in GOLDEN_DIR.glob("*/config.json")))
"""Every golden store."""

STORE_NAMES = tuple(name for name in GOLDEN_NAMES if not name.startswith("cluster-"))
"""Stores that RocketMQ's store classes alone wrote; golden/README.md describes their dumps."""

CLUSTER_NAMES = tuple(name for name in GOLDEN_NAMES if name.startswith("cluster-"))
"""Stores that a complete broker wrote; golden/README-cluster.md describes their dumps."""

RECOVERED_NAMES = tuple(sorted(p.parent.name for p in GOLDEN_DIR.glob("*/recovered.tar.gz")))
"""Stores with a second version, as RocketMQ's recovery left it."""

# RocketMQ's keys that reading needs and that cannot be seen in the files.
_OPTION_KEYS = ("maxHashSlotNum", "maxIndexNum")
_HOLE = 1 << 16
_PLACE = "GOLDEN_STORES"
"""Environment variable that names the directory shared by the processes of a run."""


@dataclass(frozen=True)
class GoldenStore:
    """One unpacked golden store and RocketMQ's dumps of its content.

    All tests of a run share the files: a test that changes files works on a `copy_to`.
    """

    name: str
    recovered: bool
    root: Path
    """The store root (``storePathRootDir``)."""
    config: dict[str, Any]
    """The content of config.json."""

    @property
    def directory(self) -> Path:
        """The directory of the packed store and its dumps."""
        return GOLDEN_DIR / self.name

    @property
    def is_cluster(self) -> bool:
        return "broker_settings" in self.config

    @property
    def config_properties(self) -> dict[str, str]:
        """RocketMQ's keys, as a broker configuration file has them; paths are relative."""
        settings = self.config.get("store") or self.config["broker_settings"]
        properties = {key: _property(value) for key, value in settings.items()}
        directories = self.config.get("commitlog_dirs", ["commitlog"])
        if directories != ["commitlog"]:
            properties["storePathCommitLog"] = ",".join(directories)
        return properties

    @property
    def options(self) -> dict[str, str]:
        """The Spark options that reading this store requires."""
        properties = self.config_properties
        keys = [*_OPTION_KEYS, "storePathCommitLog"]
        return {key: properties[key] for key in keys if key in properties}

    @property
    def config_file(self) -> Path:
        """A broker configuration file with `config_properties`, beside the store."""
        path = self.root.parent / "broker.conf"
        if not path.exists():
            lines = [f"{key}={value}\n" for key, value in self.config_properties.items()]
            made = path.with_name(f"broker.conf.{os.getpid()}")
            made.write_text("".join(lines), encoding="utf-8")
            made.replace(path)
        return path

    @property
    def meta(self) -> dict[str, Any]:
        """The content of meta.json (not of cluster stores)."""
        value: dict[str, Any] = json.loads((self.directory / "meta.json").read_text("utf-8"))
        return value

    @property
    def dump_names(self) -> list[str]:
        """Names of the line dumps, as `dump` takes them."""
        return sorted(p.name[: -len(".jsonl.gz")] for p in self.directory.glob("*.jsonl.gz"))

    def dump(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the lines of ``NAME.jsonl``, in order."""
        with gzip.open(
            self.directory / f"{name}.jsonl.gz", "rt", encoding="utf-8", newline="\n"
        ) as f:
            for line in f:
                yield json.loads(line)

    def document(self, name: str) -> Any:
        """Return the whole of ``NAME.json``, such as `lag` or `topic_stats`."""
        with gzip.open(self.directory / f"{name}.json.gz", "rt", encoding="utf-8") as f:
            return json.load(f)

    def copy_to(self, directory: Path) -> Path:
        """Copy the store to ``DIRECTORY/store``, keeping modification times; return that path."""
        return Path(shutil.copytree(self.root, directory / "store"))


def golden(name: str, recovered: bool = False) -> GoldenStore:
    """Return a golden store, unpacked at the first call in this process."""
    return _unpacked(name, recovered)


@functools.cache
def _unpacked(name: str, recovered: bool) -> GoldenStore:
    config = json.loads((GOLDEN_DIR / name / "config.json").read_text("utf-8"))
    kind = "recovered" if recovered else "store"
    target = _scratch() / name / kind
    if not target.exists():
        own = Path(tempfile.mkdtemp(dir=_scratch()))
        unpack(GOLDEN_DIR / name / f"{kind}.tar.gz", own / kind)
        _publish(own / kind, target)
    return GoldenStore(name, recovered, target / "store", config)


def _publish(made: Path, target: Path) -> None:
    """Move an unpacked store to its place, unless another process has already put it there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        made.rename(target)
    except OSError:
        if not target.exists():
            raise
    shutil.rmtree(made.parent)


def unpack(archive: Path, target: Path) -> None:
    """Unpack a tar file of files and folders; keeps modification times, leaves zeros as holes."""
    folders = []
    with tarfile.open(archive) as tar:
        for member in tar:
            path = target / member.name
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                folders.append((path, member.mtime))
                continue
            source = tar.extractfile(member)
            if source is None:
                raise ValueError(f"{archive}: {member.name} is neither a file nor a folder")
            with path.open("wb") as out:
                for block in iter(lambda: source.read(_HOLE), b""):  # noqa: B023  # used up here
                    if block.strip(b"\0"):
                        out.write(block)
                    else:
                        out.seek(len(block), os.SEEK_CUR)
                out.truncate(member.size)
            os.utime(path, (member.mtime, member.mtime))
    for path, mtime in reversed(folders):
        os.utime(path, (mtime, mtime))


def tree_state(root: Path) -> dict[str, tuple[int, int, str]]:
    """Return ``{relative path: (size, mtime_ns, sha256)}`` of all below `root`, folders included.

    A folder's size is its number of entries, its digest is empty. If two states are equal, nothing
    was created, deleted, changed or touched.
    """
    state = {}
    for path in sorted([root, *root.rglob("*")]):
        stat = path.stat()
        if path.is_dir():
            entry = (len(list(path.iterdir())), stat.st_mtime_ns, "")
        else:
            entry = (stat.st_size, stat.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        state[str(path.relative_to(root))] = entry
    return state


@functools.cache
def _scratch() -> Path:
    """Return where stores are unpacked; the first process of a run creates and removes it."""
    if _PLACE not in os.environ:
        os.environ[_PLACE] = tempfile.mkdtemp(prefix="golden-")
        atexit.register(shutil.rmtree, os.environ[_PLACE], ignore_errors=True)
    return Path(os.environ[_PLACE])


def share_scratch() -> None:
    """Share unpacked stores with the processes that this one starts."""
    _scratch()


def _property(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
