"""Ten thousand mutated stores, three commands each: no surprise, no hang, no hunger for memory."""

from __future__ import annotations

import os

import pytest

from tests.hostile.commands import COMMANDS
from tests.hostile.pool import run_stores
from tests.hostile.running import COMMANDS_PER_STORE

pytestmark = pytest.mark.soak
_STORES = int(os.environ.get("SOAK_STORES", "10000"))


def test_every_command_over_mutated_stores(capsys, soak_seed):
    tally = run_stores(soak_seed, range(_STORES))
    with capsys.disabled():
        print(f"\n{tally.text(soak_seed)}")
    assert not tally.failures
    least = _STORES * COMMANDS_PER_STORE // len(COMMANDS)
    assert all(tally.commands[name] >= least for name in COMMANDS), tally.commands
