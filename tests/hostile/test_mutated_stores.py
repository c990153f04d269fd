# SPDX-License-Identifier: Apache-2.0
"""A few of the thousands of mutated stores that `make soak` runs; and that failures are noticed."""

from __future__ import annotations

import random
import shutil

import pytest

from tests.hostile.base_stores import SMALL_NAMES, base_store
from tests.hostile.cases import WrongError, draw_case
from tests.hostile.commands import COMMANDS
from tests.hostile.mutations import MUTATIONS, mutate
from tests.hostile.pool import run_stores
from tests.hostile.running import COMMANDS_PER_STORE, commands_of, run_store
from tests.hostile.state import differences, state_of

_STORES = len(COMMANDS)  # so each command comes as often as a store has commands
_SEED = 18


def test_a_few_stores():
    tally = run_stores(_SEED, range(_STORES), workers=1)
    assert not tally.failures, tally.text(_SEED)
    assert all(tally.commands[name] == COMMANDS_PER_STORE for name in COMMANDS)


def test_a_store_is_drawn_again_as_it_was(tmp_path):
    for number in range(8):
        places = [tmp_path / f"{number}-{way}" for way in (0, 1)]
        cases = [draw_case(9, number, place, SMALL_NAMES) for place in places]
        assert cases[0].done == cases[1].done
        names = [set(state_of(case.root)) for case in cases]
        assert names[0] == names[1]


def test_every_command_comes_equally_often():
    dealt = [name for number in range(len(COMMANDS)) for name in commands_of(1, number)]
    assert sorted(dealt) == sorted([*COMMANDS] * COMMANDS_PER_STORE)


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_finds_something_to_do(tmp_path, name):
    root = tmp_path / "store"
    base_store("made:sink").write(root)
    shutil.copytree(root, tmp_path / "before", symlinks=True)
    before = state_of(root)
    chance = random.Random(name)
    done = [text for _ in range(40) if (text := MUTATIONS[name][1](chance, root))]
    assert done
    assert differences(before, state_of(root))


def test_mutations_are_as_many_as_asked_for(tmp_path):
    root = tmp_path / "store"
    base_store("made:clean").write(root)
    assert len(mutate(random.Random(1), root, 3)) == 3


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda case: (case.root / "new").write_text("x"), "a reading command changed the store"),
        (lambda case: (case.place / "outside" / "new").write_text("x"), "something outside"),
        (lambda case: (case.place / "litter").write_text("x"), "left beside the store"),
        (lambda _: int("x"), "ValueError: invalid literal"),
        (lambda _: (_ for _ in ()).throw(WrongError("rows differ")), "rows differ"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, monkeypatch, wrong, told):
    first = commands_of(3, 0)[0]
    command = COMMANDS[first]._replace(run=lambda case: str(wrong(case)), reads=True)
    monkeypatch.setitem(COMMANDS, first, command)
    _, failures = run_store(3, 0, tmp_path / "case", names=SMALL_NAMES)
    assert told in failures[0].text
