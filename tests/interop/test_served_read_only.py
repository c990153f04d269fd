# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own consumers drain a store that ``serve --read-only`` serves.

First while a broker of RocketMQ has it open and writes, then a copy of what SIGKILL left of it.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rmqsource.exit_codes import GOOD
from store_core.config.lenient_json import parse_lenient_json
from tests.interop.client_node import ClientNode, numbered_key, wait_until
from tests.interop.java_cluster import RELEASES, build
from tests.interop.live_cluster import SMALL_FILES, LiveCluster
from tests.interop.python_server import OURS
from tests.rmqsource.cli.serving import Serving

pytestmark = pytest.mark.interop

_OLD, _NEW, _RETRIED = 20, 12, 4
_SEED_OLD, _SEED_NEW, _SEED_RETRIED = 1, 2, 3
_WAIT_S = 60
_SETTINGS = {**SMALL_FILES, "messageDelayLevel": "1s 2s 4s " + "1s " * 15}
"""A failed message waits for 4 s."""
_SERVED_S = 300
_GROUPS: Mapping[str, Mapping[str, Any]] = {
    "cooks": {},
    "waiters": {"orderly": True, "fail_first": 1},
    "guests": {"broadcasting": True},
    "doubters": {"fail_first": 1},
}
"""Groups that must get everything, and options of their consumers."""


class Rescue:
    """A store of one release and all messages that consumers got from it."""

    def __init__(self, release: str, directory: Path) -> None:
        self.release = release
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.again: dict[str, list[dict[str, Any]]] = {}
        self.writable: list[str] = []
        self._directory = directory
        self._offsets = directory / "offsets.json"
        self._config = directory / "broker.conf"

    def play(self) -> None:
        """Run all steps."""
        self._directory.mkdir()
        self._config.write_text("".join(f"{key}={value}\n" for key, value in _SETTINGS.items()))
        with ExitStack() as stack:
            cluster = LiveCluster(
                self._directory / "cluster",
                self.release,
                releases={"name-server-0": OURS},
                settings=_SETTINGS,
            )
            stack.enter_context(cluster)
            node = ClientNode(self._directory / "java", self.release, cluster.namesrv_addr)
            self._java = stack.enter_context(node)
            self._before(cluster.store())
            with self._serve(cluster.store()) as served:
                self._while_it_is_open(served)
                cluster.kill_broker()
                for name in (*_GROUPS, "early"):
                    self.rows[name] = self._java.close_when_consumed(
                        name, "orders", _OLD + _NEW, _WAIT_S
                    )
                self.rows["retried"] = self._java.close_consumer("retried")
                self.stopped, _, self.said = served.stop()
            copy = self._directory / "copy"
            shutil.copytree(cluster.store(), copy)
            self.before = _listing(copy)
            with self._serve(copy) as served:
                self._after_the_crash(served)
            self.after = _listing(copy)

    def _serve(self, store: Path) -> Serving:
        where = ("--port", 0, "--with-namesrv", 0, "--config", self._config)
        more = ("--read-only", "--offsets", self._offsets)
        return Serving(store, *where, *more, deadline_s=_SERVED_S)

    def _before(self, store: Path) -> None:
        java = self._java
        java.create_topic("orders", 2)
        java.create_topic("again", 1)
        java.start_producer("tills", "tills")
        java.send("tills", "orders", _OLD, seed=_SEED_OLD)
        java.send("tills", "again", _RETRIED, seed=_SEED_RETRIED)
        java.start_consumer("early-before", "early", {"orders": "*"})
        java.start_consumer("failing", "retried", {"again": "*"}, fail_first=1)
        java.wait_received("early-before", _OLD)
        java.wait_received("failing", _RETRIED)
        java.close_when_consumed("failing", "again", _RETRIED, _WAIT_S)
        java.close_when_consumed("early-before", "orders", _OLD, _WAIT_S)
        # Failed messages come to the retry topic; offsets are saved meanwhile.
        assert wait_until(lambda: self._retries() == _RETRIED, _WAIT_S)
        noted = {"orders@early": _OLD, "again@retried": _RETRIED}
        assert wait_until(lambda: _noted(store, *noted) == noted, _WAIT_S)

    def _retries(self) -> int:
        rows = self._java.ask("offsets", topic="%RETRY%retried")
        count: int = sum(row["max_offset"] for row in rows)
        return count

    def _while_it_is_open(self, served: Serving) -> None:
        java = self._java
        java.ask("connect", namesrv_addr=served.first["namesrv"])
        for name, how in _GROUPS.items():
            java.start_consumer(name, name, {"orders": "*"}, **how)
        java.start_consumer("early", "early", {"orders": "*"})
        java.start_consumer("retried", "retried", {"again": "*"})
        java.wait_received("cooks", _OLD, _WAIT_S)
        java.start_producer("strangers", "strangers", retries=0)
        sent = java.ask("send", name="strangers", topic="orders", count=1, seed=9, mode="async")
        self.refused = sent["failed"]
        java.send("tills", "orders", _NEW, seed=_SEED_NEW)
        for name in _GROUPS:
            assert wait_until(lambda: self._done(name) == set(_all_keys()), _WAIT_S), name  # noqa: B023
        java.wait_received("early", _NEW)
        java.wait_received("retried", _RETRIED)
        self.writable = _written_files(served.process.pid, self._directory / "cluster")

    def _done(self, name: str) -> set[str]:
        return {row["keys"] for row in self._java.received(name) if row["ok"]}

    def _after_the_crash(self, served: Serving) -> None:
        java = self._java
        java.ask("connect", namesrv_addr=served.first["namesrv"])
        names = ("cooks", "waiters", "doubters", "early")
        for name in names:
            java.start_consumer(f"{name}-again", name, {"orders": "*"})
        java.start_consumer("late", "late", {"orders": "*"})
        self.rows["late"] = java.wait_received("late", _OLD + _NEW, _WAIT_S)
        assert wait_until(lambda: all(len(java.allocation(f"{name}-again")) for name in names))
        for name in names:
            self.again[name] = java.close_consumer(f"{name}-again")


def _all_keys() -> list[str]:
    old = [numbered_key(_SEED_OLD, n) for n in range(_OLD)]
    return sorted(old + [numbered_key(_SEED_NEW, n) for n in range(_NEW)])


def _noted(store: Path, *names: str) -> dict[str, int]:
    """Return the offsets of some groups in a store's file, summed over queues."""
    try:
        text = (store / "config" / "consumerOffset.json").read_text()
        table: Any = parse_lenient_json(text)
    except (OSError, ValueError):  # not there yet, or being written
        return {}
    queues = table["offsetTable"]
    return {name: sum(queues[name].values()) for name in names if name in queues}


def _written_files(process_id: int, root: Path) -> list[str]:
    """Return the files below a directory that a process has open, or mapped, for writing."""
    found = []
    proc = Path(f"/proc/{process_id}")
    for link in (proc / "fd").iterdir():
        try:
            target = str(link.readlink())
            flags = (proc / "fdinfo" / link.name).read_text().split("flags:")[1].split()[0]
        except OSError:  # closed meanwhile
            continue
        if target.startswith(str(root)) and int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
            found.append(target)
    for line in (proc / "maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) > 5 and fields[5].startswith(str(root)) and fields[1].endswith("ws"):
            found.append(fields[5])
    return found


def _listing(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return everything that can change about each file and directory, except the access time."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in [root, *root.rglob("*")]:
        state = path.stat()
        place = (state.st_ino, state.st_mode, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        found[str(path)] = (*place, path.read_bytes() if path.is_file() else None)
    return found


@pytest.fixture(scope="module")
def rescues(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rescue]:
    directory = tmp_path_factory.mktemp("served-read-only")
    for release in RELEASES:
        build(release)
    found = {release: Rescue(release, directory / f"r{release}") for release in RELEASES}
    with ThreadPoolExecutor(len(found)) as pool:  # both wait most of the time
        for playing in [pool.submit(rescue.play) for rescue in found.values()]:
            playing.result()
    return found


@pytest.fixture(params=RELEASES)
def rescue(request: pytest.FixtureRequest, rescues: dict[str, Rescue]) -> Rescue:
    return rescues[request.param]


def _by_key(rows: list[dict[str, Any]]) -> dict[str, list[bool]]:
    found = defaultdict(list)
    for row in rows:
        found[row["keys"]].append(row["ok"])
    return dict(found)


@pytest.mark.parametrize("group", ["cooks", "guests"])
def test_each_message_comes_once_also_those_that_are_new(rescue: Rescue, group: str) -> None:
    assert sorted(row["keys"] for row in rescue.rows[group]) == _all_keys()


@pytest.mark.parametrize("group", ["waiters", "doubters"])
def test_what_fails_is_tried_again_by_the_client_itself(rescue: Rescue, group: str) -> None:
    assert _by_key(rescue.rows[group]) == {key: [False, True] for key in _all_keys()}


def test_an_orderly_group_keeps_the_order(rescue: Rescue) -> None:
    queues = defaultdict(list)
    for row in rescue.rows["waiters"]:
        if row["ok"]:
            queues[row["queue_id"]].append(row["queue_offset"])
    assert len(queues) == 2
    for offsets in queues.values():
        assert offsets == list(range(len(offsets)))


def test_a_group_goes_on_where_the_broker_had_it(rescue: Rescue) -> None:
    new = Counter(numbered_key(_SEED_NEW, n) for n in range(_NEW))
    assert Counter(row["keys"] for row in rescue.rows["early"]) == new


def test_retries_that_wait_in_the_store_come(rescue: Rescue) -> None:
    wanted = [(numbered_key(_SEED_RETRIED, n), "again", 1) for n in range(_RETRIED)]
    rows = rescue.rows["retried"]
    assert sorted((row["keys"], row["topic"], row["reconsume_times"]) for row in rows) == wanted


def test_producers_hear_that_they_may_not(rescue: Rescue) -> None:
    (failed,) = rescue.refused
    assert "MQBrokerException: CODE: 16  DESC: this broker only reads its store" in failed["error"]


def test_offsets_are_remembered(rescue: Rescue) -> None:
    assert rescue.stopped == GOOD, rescue.said
    assert rescue.again == {name: [] for name in ("cooks", "waiters", "doubters", "early")}


def test_a_crashed_store_is_served_whole_and_left_as_it_is(rescue: Rescue) -> None:
    assert sorted(row["keys"] for row in rescue.rows["late"]) == _all_keys()
    assert rescue.writable == []
    assert rescue.after == rescue.before
