# SPDX-License-Identifier: Apache-2.0
"""A stream follows a store that RocketMQ writes, through rolls, cleaning and kills."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqsource
from tests.interop import java_oracle
from tests.rmqsource.stream.live_store import COLUMNS, SIZES, Feeder, Followed, LiveFollow, Proof

pytestmark = pytest.mark.interop

WAYS = [("v5", "dispatched"), ("v4", "dispatched"), ("v5", "written"), ("v4", "flushed")]
"""Adapter, and value of option ``readUpTo``."""
_LIVES, _MESSAGES, _MESSAGES_AT_ONCE = 3, 2500, 250


@pytest.mark.parametrize(("api", "read_up_to"), WAYS)
def test_every_message_once_and_in_order(tmp_path, api, read_up_to):
    followed = follow_rocketmq(tmp_path, api, read_up_to, _LIVES, _MESSAGES, seed=1)
    assert followed.messages >= _LIVES * _MESSAGES
    assert followed.expired > 0


def follow_rocketmq(
    directory: Path, api: str, read_up_to: str, lives: int, messages: int, seed: int
) -> Followed:
    """Let JVMs put messages one after the other; each except the last one is killed."""
    root, journal = directory / "store", directory / "journal"
    root.mkdir(parents=True)
    follow = LiveFollow(root, journal, seed, readUpTo=read_up_to)
    for life in range(lives):
        with _feeder(root, journal, seed * 1000 + life, api) as feeder:
            follow.during(feeder, messages)
            follow.stop(feeder, kill=life < lives - 1)
    return follow.finish()


@contextmanager
def _feeder(root: Path, journal: Path, seed: int, api: str) -> Iterator[Feeder]:
    (root.parent / "config.json").write_text(json.dumps({"store": SIZES}))
    # A kill can leave a new file without a length: 4.9.7 does not load it, and asks for a manual
    # check; 5.x deletes it.
    for path in root.rglob("*"):
        if path.parent.name != "config" and path.name.isdecimal() and path.stat().st_size == 0:
            path.unlink()
    with java_oracle.feeding(root, journal, seed, api=api) as command:
        yield Feeder(command)


def test_spark_follows(tmp_path, spark):
    root, journal = tmp_path / "store", tmp_path / "journal"
    root.mkdir()
    rmqsource.register(spark)
    proof, batches = Proof(journal), []

    def keep(batch: Any, number: int) -> None:
        del number
        batches.append([row.asDict() for row in batch.collect()])

    with _feeder(root, journal, 7, "v5") as feeder:
        frame = spark.readStream.format("rocketmq-store").load(str(root)).select(*COLUMNS)
        checkpoint = str(tmp_path / "checkpoint")
        query = (
            frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint).start()
        )
        try:
            for _ in range(_MESSAGES // _MESSAGES_AT_ONCE):
                feeder.tell(f"put {_MESSAGES_AT_ONCE}")
                feeder.tell(f"expire {_reached(query.lastProgress)}")
                query.processAllAvailable()
            feeder.stop()
            query.processAllAvailable()
        finally:
            query.stop()
    for rows in batches:
        proof.deliver(rows)
    proof.finish()
    assert proof.messages == _MESSAGES
    assert not (root / "commitlog" / f"{0:020}").exists()


def _reached(progress: Any) -> int:
    end = progress["sources"][0]["endOffset"] if progress else None
    offset = json.loads(end) if isinstance(end, str) else end
    return sum(store["offset"] for store in offset["stores"].values()) if offset else 0
