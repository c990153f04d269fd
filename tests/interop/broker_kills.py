"""Our broker is killed while this project's and RocketMQ's clients use it in every way."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from tests.interop.broker_chores import CHORES, in_ms
from tests.interop.client_node import ClientNode
from tests.interop.live_cluster import LiveCluster
from tests.interop.live_failures import SETTINGS, FailureRun
from tests.interop.python_server import OURS

# A check counts also where no producer is there to be asked.
_SETTINGS = {**SETTINGS, "transactionCheckMax": 1000}


def kill_broker_often(
    directory: Path, release: str, seed: int, kills: int, *, deadline: float = float("inf")
) -> dict[str, int]:
    """Kill a broker of ours again and again; return counts.

    Parameters
    ----------
    directory
        Takes the store and all else.
    release
        Of RocketMQ's clients.
    seed
        Of what happens.
    kills
        How many, unless the deadline comes first.
    deadline
        By the monotonic clock.

    Raises
    ------
    AssertionError
        Something that was acknowledged is lost, or came more often than RocketMQ allows.
    """
    with ExitStack() as stack:
        cluster = stack.enter_context(LiveCluster(directory / "c", OURS, settings=_SETTINGS))
        java = stack.enter_context(ClientNode(directory / "java", release, cluster.namesrv_addr))
        run = stack.enter_context(FailureRun(cluster, java, seed))
        chores = [kind(cluster, java) for kind in CHORES]
        with ExitStack() as going_on:
            for chore in chores:
                chore.start()
                going_on.callback(chore.stop)
            for _ in range(kills):
                run.break_one()
                if time.monotonic() >= deadline:
                    break
        counts = run.finish()
        for chore in chores:
            chore.check(in_ms(run.outages))
            counts[type(chore).__name__] = len(chore.acknowledged)
        return counts
