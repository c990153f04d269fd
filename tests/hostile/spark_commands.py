# SPDX-License-Identifier: Apache-2.0
"""Commands that run through Spark: export, import and copy on the command line."""

from __future__ import annotations

import base64
import csv
import functools
import io
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rmqsource.transfer.copy_store import COPIED_COLUMNS
from tests.hostile.base_stores import base_store, scratch_parent
from tests.hostile.cases import Case, WrongError, run_cli
from tests.hostile.mutations import bytes_of_files
from tests.hostile.spark_session import commands_share_it
from tests.rmqsource.reading import read_rows

_FORMATS = ("parquet", "json", "csv")
_MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
_PLACE = ("commit_log_offset", "queue_offset")
_DONE = (0, 1)
_SIZES = {"mappedFileSizeCommitLog": "4m", "maxHashSlotNum": "100", "maxIndexNum": "400"}
_HARM = (
    bytes_of_files.flip,
    bytes_of_files.random_bytes,
    bytes_of_files.shift,
    bytes_of_files.length,
)
_EXPORTED = "made:put"


def export(case: Case) -> str:
    """The files must have the rows of a read in the same mode; 0 where nothing is damaged."""
    out, mode = case.place / "exported", case.chance.choice(_MODES)
    kind = case.chance.choice(_FORMATS)
    arguments = ["export", case.root, "-o", out, "--format", kind, "--option", f"mode={mode}"]
    if case.chance.random() < 0.2:
        arguments += ["--partition-by", case.chance.choice(["topic", "day", "topic,day"])]
    with commands_share_it():
        answer = case.cli(*arguments, *case.config)
    if answer.code not in _DONE or not out.exists():
        return f"code {answer.code}"
    wanted = case.told_rows((*_PLACE, "body", "properties_raw"), mode=mode, checkCRC="true")
    if wanted is None:
        raise WrongError(f"export --format {kind}, {mode}: {answer.code}, but no read succeeds")
    rows = [row for row in wanted if row["commit_log_offset"] is not None]
    if answer.code == 0 and mode != "FAILFAST":
        # FAILFAST also refuses a segment of an odd length, even if no byte of a record is missing.
        damage = ("body", "_corrupt_record")
        strict = case.told_rows(damage, mode="PERMISSIVE", checkCRC="true")
        if strict is None or any(row["_corrupt_record"] for row in strict):
            raise WrongError(f"export, {mode}: 0, but a read in PERMISSIVE finds damage")
    told = Counter((*(row[name] for name in _PLACE), row["body"]) for row in rows)
    found = Counter(_exported(out, kind))
    if told != found:
        raise WrongError(
            f"export --format {kind}, {mode}: {answer.code}, {found.total()} messages in files, "
            f"{told.total()} read; unlike: {str((told - found) or (found - told))[:200]}"
        )
    return f"code {answer.code}"


def _exported(directory: Path, kind: str) -> Iterator[tuple[int, int, bytes]]:
    for path in sorted(directory.rglob(f"part-*.{kind}")):
        rows: Any
        if kind == "parquet":
            with pq.ParquetFile(path) as file:
                rows = file.read(columns=[*_PLACE, "body"]).to_pylist()
        elif kind == "json":
            rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        else:
            rows = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline=""))
        for row in rows:
            body = row["body"] if kind == "parquet" else base64.b64decode(row["body"])
            yield int(row["commit_log_offset"]), int(row["queue_offset"]), body


def copy(case: Case) -> str:
    """The new store must have the rows of a read in the same mode."""
    target, mode = case.place / "copied", case.chance.choice(_MODES)
    arguments = ["copy", case.root, target, "--format", "json", "--option", f"mode={mode}"]
    with commands_share_it():
        answer = case.cli(*arguments, *_write_options(systemTopics="true"), *case.config)
    if answer.code not in _DONE:
        if target.exists() and read_rows(target, ("queue_id",)):
            raise WrongError(f"copy: exit code {answer.code}, and messages in the new store")
        return f"code {answer.code}"
    row = json.loads(answer.out) if answer.out.strip() else {"messages": 0}
    made = [row["body"] for row in read_rows(target, ("body",))] if row["messages"] else []
    wanted = case.told_rows(tuple(COPIED_COLUMNS), mode=mode, checkCRC="true")
    if wanted is None and not made and answer.code:
        return "damaged"
    if wanted is None:
        raise WrongError(f"copy, {mode}: {answer.code}, but no read succeeds")
    told = [row["body"] for row in wanted if row["topic"] is not None]
    if len(made) != row["messages"] or Counter(made) != Counter(told):
        raise WrongError(
            f"copy, {mode}: {answer.code}, {row['messages']} messages told, {len(made)} in the new "
            f"store, {len(told)} read"
        )
    return f"code {answer.code}"


def import_(case: Case) -> str:
    """Import an export: a sound one comes back complete, and a failed import adds nothing."""
    kind, directory = case.chance.choice(_FORMATS), case.place / "exported"
    for name, data in _export_of(kind).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    harm = ""
    if case.chance.random() < 0.5:
        harm = case.chance.choice(_HARM)(case.chance, directory)
    target = case.root if case.chance.random() < 0.5 else case.place / "copied"
    options = _write_options(systemTopics="true") if target != case.root else []
    if target == case.root:
        options = [a for k, v in case.base.options.items() for a in ("--write-option", f"{k}={v}")]
    before = _bodies(case, target)
    with commands_share_it():
        answer = case.cli("import", directory, target, "--format", kind, *options)
    after = _bodies(case, target)
    if before is not None and (after is None or before - after):
        raise WrongError(f"import, {harm or 'sound'}: {answer.code}, and messages are gone")
    added = None if before is None or after is None else after - before
    if added is not None:
        wanted = _bodies_of_export()
        if answer.code and added:
            raise WrongError(f"import: exit code {answer.code}, and {added.total()} messages more")
        if not harm and answer.code == 0 and added != wanted:
            raise WrongError(f"import: 0, {added.total()} messages more, of {wanted.total()}")
    return f"code {answer.code}"


def _bodies(case: Case, target: Path) -> Counter[bytes] | None:
    if not target.exists():
        return Counter()
    if target != case.root:
        return Counter(row["body"] for row in read_rows(target, ("body",)))
    rows = case.rows(("body",), mode="DROPMALFORMED", failOnDataLoss="false", checkCRC="true")
    return None if rows is None else Counter(row["body"] for row in rows)


def _write_options(**more: str) -> list[str]:
    options = {**_SIZES, "compatibility": "5", **more}
    return [a for name, value in options.items() for a in ("--write-option", f"{name}={value}")]


@functools.cache
def _export_of(kind: str) -> Mapping[str, bytes]:
    """Return the files of a sound export, made once in a process."""
    with tempfile.TemporaryDirectory(dir=scratch_parent()) as place, commands_share_it():
        store, out = Path(place, "store"), Path(place, "exported")
        base_store(_EXPORTED).write(store)
        answer = run_cli("export", store, "-o", out, "--format", kind)
        assert answer.code == 0, answer.err
        files = sorted(path for path in out.rglob("*") if path.is_file())
        return {str(path.relative_to(out)): path.read_bytes() for path in files}


@functools.cache
def _bodies_of_export() -> Counter[bytes]:
    return Counter(row["body"] for row in base_store(_EXPORTED).rows())


def prepare() -> None:
    """Prepare what the commands share, before the time limit starts."""
    from tests.hostile.spark_session import session

    session()
    for kind in _FORMATS:
        _export_of(kind)
    _bodies_of_export()
