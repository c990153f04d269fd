# SPDX-License-Identifier: Apache-2.0
"""Following a mutated store in small batches must end, and give the rows of a batch read."""

from __future__ import annotations

import json

from store_core import MessageStoreConfig, StoreSnapshot, StoreState
from tests.hostile.cases import OWN_ERRORS, Case, WrongError
from tests.rmqsource.reading import Row
from tests.rmqsource.stream.simulated_query import Checkpoint, SimulatedQuery, where

_COLUMNS = ("commit_log_offset", "queue_offset", "sys_flag", "topic")
_DAMAGE = "_corrupt_record"
_READ_UP_TO = ("written", "dispatched", "flushed")
_LIMITS = ("maxOffsetsPerTrigger", "maxBytesPerTrigger")
_FEW_BATCHES = 12


def follow_store(case: Case) -> str:
    """A stream must give the rows of a batch read, or only the first of them, up to its limit."""
    chance = case.chance
    mode = chance.choice(["PERMISSIVE", "DROPMALFORMED"])
    columns = (*_COLUMNS, _DAMAGE) if mode == "PERMISSIVE" else _COLUMNS
    loss = chance.choice(["true", "false"])
    options = {**case.options, "mode": mode, "failOnDataLoss": loss}
    read_up_to = chance.choice(_READ_UP_TO)
    limit = {
        chance.choice(["maxOffsetsPerTrigger", "maxBytesPerTrigger"]): chance.choice([5, 3000])
    }
    try:
        found = _followed(case, {**options, "readUpTo": read_up_to}, limit, columns)
    except OWN_ERRORS as err:
        return type(err).__name__
    expected = case.rows(columns, mode=mode, failOnDataLoss=loss)
    if expected is None:
        return "not readable as a batch"
    # A stream reports a too long segment with its first rows; a batch read has other first rows.
    found, expected = _without_surplus(found), _without_surplus(_but_half_a_record(case, expected))
    wanted = expected if read_up_to == "written" else expected[: len(found)]
    if found != wanted:
        raise WrongError(f"{mode}, up to {read_up_to}, {limit}: {_unlike(found, wanted)}")
    return "agree"


def _but_half_a_record(case: Case, rows: list[Row]) -> list[Row]:
    """Return rows without damage at the end of a log that was not stopped: it may still grow."""
    config = MessageStoreConfig.from_properties(case.options)
    with StoreSnapshot(case.root, config) as snapshot:
        if snapshot.state is StoreState.STOPPED:
            return rows
        end = snapshot.tail_offset
    return [row for row in rows if _offset(row) < end]


def _offset(row: Row) -> int:
    damage = row.get(_DAMAGE)
    return int(json.loads(damage)["commit_log_offset"] if damage else row["commit_log_offset"])


def _followed(
    case: Case, options: dict[str, str], limit: dict[str, int], columns: tuple[str, ...]
) -> list[Row]:
    """Return the rows of some small batches, of some more after a restart, and of the rest."""
    checkpoint = Checkpoint()
    for limits in (limit, limit, {}):
        query = SimulatedQuery(checkpoint, {**where(case.root), **options, **limits}, columns)
        left = _FEW_BATCHES
        while left and query.run_once():
            left -= 1
        if not limits and not left:
            raise WrongError(f"{_FEW_BATCHES} batches, and there is more to read")
    return checkpoint.rows


def _without_surplus(rows: list[Row]) -> list[Row]:
    return [row for row in rows if "more than a segment" not in (row.get(_DAMAGE) or "")]


def _unlike(found: list[Row], wanted: list[Row]) -> str:
    pairs = zip([*found, None], [*wanted, None])
    at = next((number for number, pair in enumerate(pairs) if pair[0] != pair[1]), 0)
    rows = f"{found[at : at + 1]} / {wanted[at : at + 1]}"
    return f"{len(found)} rows, a batch read has {len(wanted)}; row {at} is {rows}"
