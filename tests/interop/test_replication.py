"""RocketMQ follows this project's store, this project's store follows RocketMQ's, and its own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.interop import java_cluster, java_oracle
from tests.interop.replication_rounds import Case, Processes, Round

pytestmark = pytest.mark.interop

ROUNDS = 20
# They mostly wait.
_AT_ONCE = 3


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    for release in java_cluster.RELEASES:
        java_cluster.build(release)
    for api in java_oracle.APIS:
        java_oracle.build(api)
    made = Processes(tmp_path_factory.mktemp("processes"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def rounds(
    processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int, Future[Any]]]:
    directory = tmp_path_factory.mktemp("rounds")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {
            seed: pool.submit(Round(Case.of_seed(seed), directory / str(seed), processes).play)
            for seed in range(ROUNDS)
        }


@pytest.mark.parametrize("seed", range(ROUNDS), ids=lambda seed: str(Case.of_seed(seed)))
def test_both_are_equal_in_the_end(rounds, seed):
    assert rounds[seed].result()
