# SPDX-License-Identifier: Apache-2.0
"""Two hundred pairs of maintenance on damaged stores; `make soak` runs thousands."""

from __future__ import annotations

import itertools

import pytest

from store_core import MessageStore
from tests.hostile import spark_session
from tests.maintenance import sequences
from tests.maintenance.ledger import read_ledger
from tests.maintenance.operations import OPERATIONS, Operation, Outcome
from tests.maintenance.sequences import is_large, operations_of, run_sequence

_SEQUENCES = 100
_PARTS = 10


@pytest.mark.parametrize("part", range(_PARTS))
def test_no_message_is_lost_and_all_doors_agree(part):
    seeds = [seed for seed in range(part, _SEQUENCES, _PARTS) if not is_large(seed)]
    runs = [run_sequence(seed) for seed in seeds]
    assert [run.text for run in runs if run.failure] == []
    assert sum(run.counts["doors"] for run in runs) > 3 * len(seeds)


@pytest.mark.parametrize("seed", [*filter(is_large, range(_SEQUENCES))])
def test_with_spark_a_network_and_a_slave(seed, spark, monkeypatch):
    import rmqsource

    rmqsource.register(spark)
    monkeypatch.setattr(spark_session, "session", lambda: spark)
    assert run_sequence(seed).failure == ""


def test_every_triple_is_dealt_once():
    triples = len(OPERATIONS) ** 3
    dealt = [tuple(operations_of(seed)) for seed in range(triples) if not is_large(seed)]
    assert len(dealt) == len(set(dealt)) > 0.97 * triples
    assert set(dealt) <= set(itertools.product(OPERATIONS, repeat=3))


def _erase(store):
    """Lose the last message of the log silently."""
    ledger = read_ledger(store.root)
    last = max(ledger.records.values())
    for path in store.root.glob("commitlog/*"):
        if int(path.name) <= last.start < int(path.name) + path.stat().st_size:
            data = bytearray(path.read_bytes())
            at = last.start - int(path.name)
            data[at : at + last.size] = bytes(last.size)
            path.write_bytes(data)
    return Outcome(0, "done")


def _forget_a_put(store):
    return Outcome(0, "1 put", put=(b"never stored",))


def _open_and_close(store):
    with MessageStore(store.config()):
        return Outcome(0, "done")


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (_erase, "1 readable records are gone"),
        (_forget_a_put, "1 acknowledged messages are not in the log"),
        (lambda _: int("x"), "ValueError: invalid literal"),
        (_open_and_close, ""),
    ],
)
def test_what_breaks_is_told(run, told, monkeypatch):
    monkeypatch.setattr(sequences, "damage", lambda *_: "none")
    monkeypatch.setattr(sequences, "OPERATIONS", dict.fromkeys(["it"], Operation(run)))
    assert told in run_sequence(1).failure
    assert bool(told) == bool(run_sequence(1).failure)
