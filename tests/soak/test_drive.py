"""RocketMQ's clients drive our cluster through every section, three runs a release."""

from __future__ import annotations

import pytest

import rmqnet
from tests.interop.java_cluster import RELEASES
from tests.interop.test_drive import SETTINGS, driven, sections

pytestmark = pytest.mark.soak

_RUNS = 3


@pytest.mark.parametrize("release", RELEASES)
def test_three_runs_in_a_row(tmp_path, soak_seed, release):
    names = sections(release, tmp_path / "listed")
    for run in range(_RUNS):
        seed = 100 * soak_seed + run
        directory = tmp_path / str(run)
        directory.mkdir()
        with rmqnet.serve(directory / "store", settings=SETTINGS) as cluster:
            failed, passed = driven(release, cluster.namesrv_addr, directory / "java", seed, names)
        assert failed == [], f"seed {seed}"
        assert passed > 200, f"seed {seed}"
