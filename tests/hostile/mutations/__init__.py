# SPDX-License-Identifier: Apache-2.0
"""Damage of every kind to the files of a store, drawn from a generator of random numbers.

Each mutation takes the generator and the store root, and damages the store if it can. It returns a
short description of the damage, or an empty text if there was nothing to damage.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.hostile.mutations import bytes_of_files, files, json_files, structures
from tests.hostile.mutations.places import outside_of

__all__ = ["MUTATIONS", "mutate", "outside_of"]

Mutation = Callable[[random.Random, Path], str]


MUTATIONS: dict[str, tuple[int, Mutation]] = {
    "flip": (10, bytes_of_files.flip),
    "bytes": (10, bytes_of_files.random_bytes),
    "shift": (3, bytes_of_files.shift),
    "length": (6, bytes_of_files.length),
    "torn tail": (4, bytes_of_files.torn_tail),
    "record": (10, structures.record_field),
    "old records": (3, structures.old_records),
    "unit": (6, structures.queue_unit),
    "index": (5, structures.index_field),
    "checkpoint": (5, structures.checkpoint),
    "swap": (5, files.swap),
    "duplicate": (4, files.duplicate),
    "rename": (4, files.rename),
    "odd entry": (4, files.odd_directory),
    "delete": (6, files.delete),
    "replace": (7, files.replace),
    "times": (2, files.times),
    "abort": (5, files.abort),
    "json": (6, json_files.json_file),
    "staging": (5, json_files.staging),
}
"""Weight and function by name."""

_NAMES = tuple(MUTATIONS)
_WEIGHTS = [weight for weight, _ in MUTATIONS.values()]


def mutate(chance: random.Random, root: Path, count: int) -> list[str]:
    """Make some mutations; return their descriptions."""
    done: list[str] = []
    for _ in range(20 * count):
        name = chance.choices(_NAMES, _WEIGHTS)[0]
        text = MUTATIONS[name][1](chance, root)
        if text:
            done.append(f"{name}: {text}")
        if len(done) == count:
            break
    return done
