# SPDX-License-Identifier: Apache-2.0
"""A mutated store and the commands it goes through, drawn from a seed and a number."""

from __future__ import annotations

import contextlib
import io
import random
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rmqsource import cli
from rmqsource.errors import SourceError
from store_core.errors import StoreError
from tests.hostile.base_stores import BASE_NAMES, SMALL_NAMES, BaseStore, base_store
from tests.hostile.mutations import mutate, outside_of
from tests.rmqsource.reading import Row, read_rows

OWN_ERRORS = (SourceError, StoreError)
"""Errors that a damaged store may raise."""

EXIT_CODES = (0, 1, 2, 3)
_SMALL_SHARE = 0.7
_MOST_MUTATIONS = 4
_UNDISPATCHED = (4, 12)


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class WrongError(Exception):
    """A command ended properly, but its effect or its output cannot be right."""


@dataclass
class Case:
    """One mutated store.

    Attributes
    ----------
    place
        A directory of its own; the store is in its folder ``store``.
    done
        The mutations that were made.
    """

    place: Path
    base: BaseStore
    chance: random.Random
    done: list[str]
    commands: list[str] = field(default_factory=list)
    config: list[str] = field(default_factory=list)
    """Arguments that name the broker's configuration file, or none."""

    @property
    def root(self) -> Path:
        return self.place / "store"

    @property
    def options(self) -> dict[str, str]:
        """Options of a read."""
        return dict(self.base.options)

    def cli(self, *arguments: object) -> Answer:
        """Run ``rocketmq-store`` in this process.

        Raises
        ------
        WrongError
            The exit code is in no table, there is a traceback, or a failure has no message.
        """
        answer = run_cli(*arguments)
        if answer.code not in EXIT_CODES:
            raise WrongError(f"exit code {answer.code} of {arguments}: {answer.err[-300:]}")
        if "Traceback" in answer.err:
            raise WrongError(f"a traceback of {arguments}: {answer.err[-1500:]}")
        if answer.code and not (answer.err + answer.out).strip():
            raise WrongError(f"exit code {answer.code} of {arguments} without a word")
        return answer

    def rows(self, columns: Iterable[str] | None = None, **options: Any) -> list[Row] | None:
        """Return rows read without Spark; None if the store cannot be read."""
        try:
            return read_rows(self.root, columns, **{**self.options, **options})
        except OWN_ERRORS:
            return None

    def told_rows(self, columns: Iterable[str] | None = None, **options: Any) -> list[Row] | None:
        """Return rows read with the options the command line has, and no others."""
        told = {"config": self.config[1]} if self.config else {}
        try:
            return read_rows(self.root, columns, **told, **options)
        except OWN_ERRORS:
            return None

    def all_rows(self, columns: Iterable[str] | None = None) -> dict[tuple[int, int], Row] | None:
        """Return every dispatched row that a scan of the log gives, by commit log offset."""
        rows = self.rows(columns, access="commitlog", mode="DROPMALFORMED")
        return None if rows is None else by_place(rows)

    def log_bytes(self) -> dict[int, bytes]:
        """Return the content of the segments without the zeros at their ends, by first offset."""
        found = {}
        for path in sorted(self.root.glob("commitlog*/*")):
            name = path.name
            is_segment = len(name) == 20 and name.isascii() and name.isdecimal()
            if is_segment and path.is_file() and path.stat().st_size <= 64 << 20:
                found[int(name)] = path.read_bytes()
        return found


def by_place(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int], Row]:
    """Return dispatched rows by commit log and queue offset, without column ``store``."""
    return {
        (row["commit_log_offset"], row["queue_offset"]): {
            name: value for name, value in row.items() if name not in {"store", "_corrupt_record"}
        }
        for row in rows
        if row["commit_log_offset"] is not None and row["sys_flag"] & 12 not in _UNDISPATCHED
    }


def run_cli(*arguments: object) -> Answer:
    """Run ``rocketmq-store`` in this process; pass on all that it raises except its exit."""
    out, err = io.BytesIO(), io.BytesIO()
    streams = [io.TextIOWrapper(stream, "utf-8", "surrogateescape") for stream in (out, err)]
    kept, sys.argv = sys.argv, ["rocketmq-store", *map(str, arguments)]
    code: object = None
    try:
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            try:
                cli.main()
            except SystemExit as left:
                code = left.code
    finally:
        sys.argv = kept
    for stream in streams:
        stream.flush()
    texts = [stream.getvalue().decode("utf-8", "replace") for stream in (out, err)]
    return Answer(code if isinstance(code, int) else 0 if code is None else 1, *texts)


def draw_case(seed: int, number: int, place: Path, names: tuple[str, ...] = ()) -> Case:
    """Make a mutated store below a new directory.

    Parameters
    ----------
    names
        Base stores to draw from; all if empty.
    """
    chance = random.Random(f"{seed}/{number}")
    name = chance.choice(SMALL_NAMES if chance.random() < _SMALL_SHARE else BASE_NAMES)
    if names:
        name = chance.choice(names)
    base = base_store(name)
    place.mkdir()
    base.write(place / "store")
    config = place / "broker.conf"
    lines = [f"{key}={value}\n" for key, value in base.properties.items()]
    config.write_text("".join(lines), encoding="utf-8")
    outside_of(place / "store")
    done = mutate(chance, place / "store", chance.randint(1, _MOST_MUTATIONS))
    with_config = chance.random() < 0.85
    return Case(place, base, chance, done, config=["--config", str(config)] if with_config else [])
