"""RocketMQ's own clients and admin classes judge our broker and name server, check by check.

Each program knows what the release answers that the broker says it is. Both releases drive one
cluster at the same time, under names of their own.
"""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

import rmqnet
from tests.interop.java_cluster import RELEASES, build, java_options

pytestmark = pytest.mark.interop

SETTINGS = {
    "brokerName": "broker-a",
    "brokerClusterName": "DefaultCluster",
    "enablePropertyFilter": True,
    "osPageCacheBusyTimeOutMills": 10_000,
    "flushConsumerOffsetInterval": 1000,
    "flushDelayOffsetInterval": 1000,
    "messageDelayLevel": "1s 2s 3s 5s 1m 1h",
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 2000,
    "transactionCheckMax": 3,
    "transactionOpBatchInterval": 500,
}
_SLOW = ("robust", "load")
_LIMIT_SECONDS = 900


def sections(release, directory, *, slow=False):
    listed = _java(release, directory, "--list").stdout.splitlines()
    names = [json.loads(line)["section"] for line in listed]
    return ",".join(name for name in names if slow or name not in _SLOW)


def _java(release, directory, *arguments):
    return subprocess.run(
        [*java_options(directory, release), "drive", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=_LIMIT_SECONDS,
        check=False,
    )


def driven(release, namesrv_addr, directory, seed, *, slow=False):
    """Return what failed, and how many checks passed."""
    directory.mkdir()
    wanted = sections(release, directory, slow=slow)
    arguments = (namesrv_addr, str(directory / "out"), str(seed), "--sections", wanted)
    done = _java(release, directory, *arguments)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows, done.stderr[-4000:]
    assert rows[-1].get("done"), done.stderr[-4000:]
    failed = [row for row in rows if row.get("ok") is False]
    return failed, rows[-1]["passed"]


def test_clients_of_both_releases(tmp_path):
    for release in RELEASES:
        build(release)
    with (
        rmqnet.serve(tmp_path / "store", settings=SETTINGS) as cluster,
        ThreadPoolExecutor(len(RELEASES)) as pool,
    ):
        runs = [
            pool.submit(driven, release, cluster.namesrv_addr, tmp_path / release, seed)
            for seed, release in enumerate(RELEASES, 1)
        ]
        for release, run in zip(RELEASES, runs):
            failed, passed = run.result()
            assert failed == [], release
            assert passed > 200, release
