# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own clients and admin classes judge our broker and name server, check by check.

Each program knows the answers of the release that the broker claims to be. All programs drive one
cluster at the same time, each section of each release with names of its own.
"""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

import rmqnet
from tests.interop.java_cluster import ALL_RELEASES, build, java_options

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
_SHARES = 3  # programs of a release: they mostly wait


def sections(release, directory):
    """Return the names of all sections."""
    directory.mkdir()
    listed = _java(release, directory, "--list").stdout.splitlines()
    return [json.loads(line)["section"] for line in listed]


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


def driven(release, namesrv_addr, directory, seed, names):
    """Return the failed checks of some sections, and how many checks passed."""
    directory.mkdir()
    arguments = (namesrv_addr, str(directory / "out"), str(seed), "--sections", ",".join(names))
    done = _java(release, directory, *arguments)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows, done.stderr[-4000:]
    assert rows[-1].get("done"), done.stderr[-4000:]
    failed = [row for row in rows if row.get("ok") is False]
    return failed, rows[-1]["passed"]


def test_clients_of_all_releases(tmp_path):
    shares = {}
    for release in ALL_RELEASES:
        build(release)
        names = [n for n in sections(release, tmp_path / release) if n not in _SLOW]
        shares[release] = [names[first::_SHARES] for first in range(_SHARES)]
    with (
        rmqnet.serve(tmp_path / "store", settings=SETTINGS) as cluster,
        ThreadPoolExecutor(_SHARES * len(ALL_RELEASES)) as pool,
    ):
        runs = {
            release: [
                pool.submit(
                    driven, release, cluster.namesrv_addr, tmp_path / f"{release}-{n}", seed, names
                )
                for n, names in enumerate(shares[release])
            ]
            for seed, release in enumerate(ALL_RELEASES, 1)
        }
        for release in ALL_RELEASES:
            results = [run.result() for run in runs[release]]
            assert [row for failed, _ in results for row in failed] == [], release
            assert sum(passed for _, passed in results) > 200, release
