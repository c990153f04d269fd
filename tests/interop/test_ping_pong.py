# SPDX-License-Identifier: Apache-2.0
"""RocketMQ and this project append to one store in turn, and stop cleanly or not at all."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from store_core import Message, MessageStore, MessageStoreConfig, StoreSnapshot
from store_core.state.checkpoint import CheckpointFile
from tests.interop import java_oracle, python_writer
from tests.interop.test_fresh_stores import FreshStore

pytestmark = pytest.mark.interop

ROUNDS = 6
PROFILES = [("v5", "classic-5x"), ("v4", "classic-4x"), ("v5", "multipath-5x"), ("v5", "ext-5x")]
_JAVA_PUTS, _OUR_PUTS = 60, 200


@pytest.mark.parametrize(("api", "profile"), PROFILES[:2])
def test_every_message_is_found_every_time(tmp_path, api, profile):
    assert play(tmp_path, api, profile, ROUNDS, seed=5) == ROUNDS


@pytest.mark.parametrize(("api", "profile"), PROFILES[2:])
def test_stores_of_other_kinds(tmp_path, api, profile):
    assert play(tmp_path, api, profile, 2, seed=6) == 2


def test_what_was_put_and_not_dispatched_is_found_though_the_clock_was_set_back(tmp_path):
    """Put a message while the clock is minutes ahead; then real time goes on."""
    root = java_oracle.generate("multipath-5x", 7, tmp_path)
    messages = java_oracle.check(root)["messages"]
    config = json.loads((root.parent / "config.json").read_text("utf-8"))
    properties = FreshStore("multipath-5x", False, root, config).config_properties
    ahead_ms = int(time.time() * 1000) + 600_000
    _put_at(root, properties, ahead_ms)
    java_oracle.put(root, _JAVA_PUTS, 1, halt=True)
    _write_checkpoint(root, ahead_ms)
    _append(root, properties, 2, how="undispatched")
    found = java_oracle.check(root)
    assert found["ok"], json.dumps(found)
    assert found["messages"] == messages + 1 + _JAVA_PUTS + _OUR_PUTS


def _put_at(root: Path, properties: dict[str, str], now_ms: int) -> None:
    config = MessageStoreConfig.from_properties({**properties, "storePathRootDir": str(root)})
    with MessageStore(config, clock=lambda: now_ms) as store:
        assert store.put_message(Message("TopicTest", b"ahead", keys=["ahead"])).is_appended


def _write_checkpoint(root: Path, timestamp: int) -> None:
    """Write the checkpoint that RocketMQ writes a second later, for records of that time."""
    checkpoint = CheckpointFile(str(root / "checkpoint"))
    checkpoint.load()
    checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = timestamp
    checkpoint.flush()
    checkpoint.close()


def play(
    directory: Path, api: str, profile: str, rounds: int, seed: int, deadline: float = math.inf
) -> int:
    """Append in turn; RocketMQ checks the store after each of our turns. Return how many turns.

    At least one turn runs: before the first the Java programs may have to be built.
    """
    generator = random.Random(seed)
    root = java_oracle.generate(profile, seed, directory / "made")
    config = json.loads((root.parent / "config.json").read_text("utf-8"))
    store = FreshStore(profile, False, root, config)
    messages = java_oracle.check(root, api=api)["messages"]
    done = 0
    while done < rounds and (done == 0 or time.monotonic() < deadline):
        java_oracle.put(root, _JAVA_PUTS, 100 + done, api=api, halt=generator.random() < 0.5)
        halt = generator.random() < 0.5
        _append(root, store.config_properties, 200 + done, how="halt" if halt else "stop")
        messages += _JAVA_PUTS + _OUR_PUTS
        found = java_oracle.check(root, api=api)
        assert found["ok"], json.dumps({"turns": done, **found})
        assert found["messages"] == messages
        done += 1
    _compare_index_queries(store, directory / "dump", api)
    return done


def _append(root: Path, properties: dict[str, str], seed: int, *, how: str) -> None:
    module = python_writer.__name__
    command = [sys.executable, "-m", module, str(root), json.dumps(properties)]
    subprocess.run(
        [*command, str(_OUR_PUTS), str(seed), how],
        check=True,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
    )


def _compare_index_queries(store: FreshStore, dump: Path, api: str) -> None:
    """RocketMQ answers every query by key as we do, even for our own messages."""
    java_oracle.dump(store.root, dump, api=api)
    config = MessageStoreConfig.from_properties(store.config_properties)
    asked = 0
    with StoreSnapshot(store.root, config) as snapshot:
        for line in (dump / "index_query.jsonl").read_text("utf-8").splitlines():
            query = json.loads(line)
            found = snapshot.query_message(
                query["topic"], query["key"], query["max_num"], query["begin"], query["end"]
            )
            offsets = [message.commit_log_offset for message in found.messages]
            assert offsets == query["message_offsets"], query
            asked += query["topic"] == python_writer.TOPIC
    assert asked > 0
