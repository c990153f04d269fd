# SPDX-License-Identifier: Apache-2.0
"""The commands for a mutated store: every command, every table, and what must hold of each.

A command is a function of a `Case`. It returns a word for how it ended and raises `WrongError` if
an answer cannot be right. It does not catch other errors: they are failures too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import rmqsource
from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.committing import commit_parts
from rmqsource.sink.errors import SinkCommitError
from rmqsource.sink.options import parse_sink_options
from rmqsource.sink.prepared_write import plan_write
from rmqsource.sink.task import stage_part
from rmqsource.tables import TABLES
from store_core import Message, MessageStore, MessageStoreConfig, SqlFilter, StoreSnapshot
from store_core.errors import CorruptRecordError
from tests.hostile import spark_commands
from tests.hostile.cases import OWN_ERRORS, Case, WrongError, by_place
from tests.hostile.follow_command import follow_store
from tests.hostile.fork_command import fork
from tests.hostile.recover_claims import flushed_index, may_be_left
from tests.rmqsource.reading import Row, read_batches, read_rows
from tests.rmqsource.sink.support import TYPES, batch_of

_FORMATS = ("table", "json", "csv")
_MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
_FOREVER = (0, 2**63 - 1)
_PLACE = ("commit_log_offset", "queue_offset", "sys_flag", "topic")
_GOOD = {"mode": "DROPMALFORMED", "failOnDataLoss": "false", "checkCRC": "true"}
"""A record that fails its CRC is damage: it is dropped where the log is cut, as in RocketMQ."""
_METADATA = tuple(name for name in TABLES if name not in {"messages", "keys", "plan"})


class Command(NamedTuple):
    """A command.

    Attributes
    ----------
    reads
        It must not change the store.
    prepare
        Prepares what many runs share; called before the time limit starts.
    """

    run: Callable[[Case], str]
    reads: bool
    prepare: Callable[[], None] = lambda: None


# Commands that only read.


def _shown(case: Case, command: str, *arguments: object) -> str:
    extra = ["--format", case.chance.choice(_FORMATS)]
    if case.chance.random() < 0.5 and command != "check":
        extra += ["--option", f"mode={case.chance.choice(_MODES)}"]
    return f"code {case.cli(command, case.root, *arguments, *extra, *case.config).code}"


def _info(case: Case) -> str:
    return _shown(case, "info")


def _topics(case: Case) -> str:
    return _shown(case, "topics")


def _messages(case: Case) -> str:
    return _shown(case, "messages", "--limit", case.chance.choice([0, 3, 50]))


def _some_row(case: Case) -> Row:
    rows = case.base.rows()
    return case.chance.choice(rows) if rows else {}


def _of_tag(tag: str) -> str:
    """Return a SQL filter on a tag; half of them never have a result for a message with KEYS."""
    quoted = tag.replace("'", "''")
    return f"TAGS = '{quoted}' OR (TAGS = '{quoted}' AND KEYS > 5)"


def _filters(case: Case) -> list[str]:
    """Return one or two flags that select messages."""
    row = _some_row(case)
    if not row:
        return ["--topic", "none"]
    key = case.chance.choice(row["keys"] or ["k1"])
    flags = [
        ["--topic", row["topic"]],
        ["--topic", row["topic"], "--key", key],
        ["--key", key],
        ["--tag", row["tags"] or "tag1"],
        ["--sql", _of_tag(row["tags"] or "tag1")],
        ["--sql", "WAIT = TRUE AND KEYS > 5"],
        ["--since", row["store_timestamp"].isoformat()],
        ["--until", row["store_timestamp"].isoformat()],
        ["--id", row["message_id"]],
        ["--id", row["unique_key"] or "none"],
    ]
    return case.chance.choice(flags)


def _filtered(case: Case) -> str:
    return _shown(case, "messages", *_filters(case), "--limit", "0")


def _check(case: Case) -> str:
    answer = case.cli("check", case.root, "--format", case.chance.choice(_FORMATS), *case.config)
    return f"code {answer.code}"


def _trace(case: Case) -> str:
    row = _some_row(case)
    key = case.chance.choice((row.get("keys") or ["k1"]) + ["all"])
    which = ["--id", row["unique_key"]] if row.get("unique_key") else ["--key", key]
    return _shown(case, "trace", *which)


def _report(case: Case) -> str:
    kind = "html" if case.chance.random() < 0.02 else "json"
    out = case.place / "report"
    arguments = ["report", case.root, "-o", out, "--format", kind, *case.config]
    if case.chance.random() < 0.5:
        arguments += ["--option", f"mode={case.chance.choice(_MODES)}"]
    answer = case.cli(*arguments)
    if answer.code == 0 and not out.is_file():
        raise WrongError("report: exit code 0 and no file")
    out.unlink(missing_ok=True)
    return f"code {answer.code}"


def _diff(case: Case) -> str:
    """Exit code 0 for the mutated store requires that it has the same messages as before."""
    sound = case.place / "sound"
    case.base.write(sound)
    paths = [case.root, sound] if case.chance.random() < 0.5 else [sound, case.root]
    way = case.chance.choice(["key", "position"])
    arguments = ["--format", case.chance.choice(_FORMATS), *case.config]
    if case.chance.random() < 0.5:
        arguments += ["--option", "mode=DROPMALFORMED"]
    return f"code {case.cli('diff', *paths, '--by', way, *arguments).code}"


def _dry_run(case: Case) -> str:
    cut = ["--cut"] if case.chance.random() < 0.3 else []
    return f"code {case.cli('recover', case.root, '--dry-run', *cut, *case.config).code}"


def _tables(case: Case) -> str:
    """Read every table of metadata, and the keys, the plan and the snapshot of a read."""
    ends = set()
    for table in (*_METADATA, "keys", "plan"):
        ends.add(_read_table(case, table))
    try:
        token = rmqsource.snapshot(str(case.root), case.options)
        read_rows(case.root, snapshot=token, mode="PERMISSIVE", **case.options)
        rmqsource.explain(str(case.root), {**case.options, "topic": "TopicA"})
        rmqsource.last_commit(str(case.root))
    except OWN_ERRORS as err:
        ends.add(type(err).__name__)
    return "read" if ends == {"read"} else "errors"


def _read_table(case: Case, table: str) -> str:
    options = {"table": table, "mode": case.chance.choice(_MODES), **case.options}
    try:
        if table in TABLES and table not in {"plan", "messages", "keys"}:
            _read_metadata(case, table, options)
        elif table == "plan":
            rmqsource.explain(str(case.root), {**case.options, "topic": "TopicA"})
        else:
            for _ in read_batches(case.root, **options):
                pass
    except OWN_ERRORS as err:
        return type(err).__name__
    return "read"


def _read_metadata(case: Case, table: str, options: Mapping[str, str]) -> None:
    from rmqsource.cli.read import read_table
    from rmqsource.options.source_options import parse_options

    for batch in read_table(table, parse_options({**options, "path": str(case.root)})):
        for column in batch.values():
            column.validate(full=True)


_SQL_GROUP, _SQL = "cg_clicks_sql5", "vip = TRUE OR vip = 'yes'"
"""Registered in golden cluster-5x-ext, whose bitmaps refer to it."""


def _snapshot(case: Case) -> str:
    """Call the reading methods of a snapshot; their messages must be those of the log."""
    config = MessageStoreConfig.from_properties(case.base.properties)
    rows = case.all_rows(_PLACE)
    found = 0
    try:
        snapshot = StoreSnapshot(case.root, config)
    except OWN_ERRORS as err:
        return type(err).__name__
    with snapshot:
        for _ in range(5):
            found += _ask(case, snapshot, rows)
    return "found" if found else "nothing"


def _ask(case: Case, snapshot: StoreSnapshot, rows: Mapping[tuple[int, int], Row] | None) -> int:
    row = _some_row(case)
    if not row:
        return 0
    topic, queue_id, at = row["topic"], row["queue_id"], row["queue_offset"]
    begin, end = _FOREVER
    questions: list[Callable[[], Any]] = [
        lambda: snapshot.get_message("g", topic, queue_id, at, 32).messages,
        lambda: snapshot.query_message(topic, (row["keys"] or ["k"])[0], 32, begin, end).messages,
        lambda: snapshot.look_message_by_offset(row["commit_log_offset"]),
        lambda: snapshot.look_message_by_id(row["message_id"]),
        lambda: snapshot.get_offset_in_queue_by_time(
            topic, queue_id, int(row["store_timestamp"].timestamp() * 1000)
        ),
        lambda: snapshot.get_min_offset_in_queue(topic, queue_id),
        lambda: snapshot.get_max_offset_in_queue(topic, queue_id),
        lambda: snapshot.get_message_store_timestamp(topic, queue_id, at),
        lambda: snapshot.get_earliest_message_time(topic, queue_id),
        lambda: snapshot.find_messages(topic, row["keys"] or ["k"]),
        lambda: snapshot.get_message(_SQL_GROUP, topic, queue_id, at, 32, SqlFilter(_SQL)).messages,
    ]
    number = case.chance.randrange(len(questions))
    try:
        answer = questions[number]()
    except OWN_ERRORS:
        return 0
    if number in {0, len(questions) - 1} and rows is not None:
        scanned = {(r["commit_log_offset"], r["topic"]) for r in rows.values()}
        for message in answer:
            if (message.commit_log_offset, message.topic) not in scanned and "%" not in topic:
                raise WrongError(f"get_message gives {message.commit_log_offset}, a scan does not")
    return 1


# Reads that must agree.


def _agree(case: Case) -> str:
    """Every access path must give the rows of a log scan that match the predicate."""
    scanned = case.all_rows()
    if scanned is None:
        return "not readable"
    sound = _sound_rows(case)
    for place in scanned.keys() & sound.keys():
        if scanned[place] != sound[place]:
            raise WrongError(
                f"the scan gives another row at {place}: {_unlike(scanned, sound, place)}"
            )
    for options, wanted in _questions(case):
        mode = case.chance.choice(["PERMISSIVE", "DROPMALFORMED", "FAILFAST"])
        rows = case.rows(**options, mode=mode, failOnDataLoss="false")
        if rows is None:
            continue
        found = by_place(rows)
        expected = {place for place, row in scanned.items() if place in sound and wanted(row)}
        got = found.keys() & sound.keys()
        if "tags" in options and got < expected and _has_damaged_tags(case):
            continue
        if got != expected:
            raise WrongError(
                f"{options} in mode {mode}: lacks {sorted(expected - got)[:5]}, "
                f"has besides {sorted(got - expected)[:5]}, of {len(expected)}"
            )
        for place in got:
            if found[place] != scanned[place]:
                raise WrongError(f"{options}: row {place}: {_unlike(found, scanned, place)}")
    return "agree"


def _has_damaged_tags(case: Case) -> bool:
    """Return whether units have codes of other tags: a read by tag trusts them, as consumers do."""
    checked = json.loads(case.cli("check", case.root, "--format", "json", *case.config).out or "{}")
    kinds = {finding["kind"] for finding in checked.get("findings", ())}
    return bool(kinds & {"unit tags", "unit delivery"})


def _unlike(one: Mapping[Any, Row], other: Mapping[Any, Row], place: tuple[int, int]) -> str:
    names = [name for name in one[place] if one[place][name] != other[place][name]]
    return ", ".join(f"{n} {one[place][n]!r:.60} / {other[place][n]!r:.60}" for n in names)


def _sound_rows(case: Case) -> dict[tuple[int, int], Row]:
    """Return the rows of the undamaged store whose bytes are unchanged in the log."""
    rows = by_place(case.base.rows())
    now = case.log_bytes()
    before = {
        int(name.rpartition("/")[2]): file
        for name, file in case.base.files.items()
        if file is not None and name.startswith("commitlog") and name[-20:].isdecimal()
    }
    kept = {}
    for place, row in rows.items():
        at, size = place[0], row["store_size"]
        first = max((begin for begin in before if begin <= at), default=None)
        if first is None or first not in now:
            continue
        if now[first][at - first : at - first + size] == _bytes_of(before[first], at - first, size):
            kept[place] = row
    return kept


def _bytes_of(file: Any, at: int, size: int) -> bytes:
    data = bytearray(size)
    for begin, extent in file.extents:
        low, high = max(at, begin), min(at + size, begin + len(extent))
        if low < high:
            data[low - at : high - at] = extent[low - begin : high - begin]
    return bytes(data)


def _questions(case: Case) -> list[tuple[dict[str, str], Callable[[Row], bool]]]:
    """Return three selections: the options, and the condition on a row."""
    row = _some_row(case)
    if not row:
        return [({}, lambda _: True)]
    topic, queue, unique = row["topic"], row["queue_id"], row["unique_key"] or "none"
    key = case.chance.choice(row["keys"] or ["none"])
    at = int(row["store_timestamp"].timestamp() * 1000)
    tag = row["tags"] or "none"

    def ms(one: Row) -> int:
        return round(one["store_timestamp"].timestamp() * 1000)

    questions: list[tuple[dict[str, str], Callable[[Row], bool]]] = [
        ({}, lambda _: True),
        ({"topic": json.dumps([topic])}, lambda r: r["topic"] == topic),
        (
            {"topic": json.dumps([topic]), "queueId": str(queue)},
            lambda r: r["topic"] == topic and r["queue_id"] == queue,
        ),
        (
            {"topic": json.dumps([topic]), "keys": json.dumps([key])},
            lambda r: r["topic"] == topic and key in (r["keys"] or ()),
        ),
        ({"uniqueKeys": json.dumps([unique])}, lambda r: r["unique_key"] == unique),
        ({"tags": tag}, lambda r: r["tags"] == tag),
        ({"sqlFilter": _of_tag(tag)}, lambda r: r["tags"] == tag),
        (
            {"topic": json.dumps([topic]), "tags": tag},
            lambda r: r["topic"] == topic and r["tags"] == tag,
        ),
        (
            {"messageIds": row["message_id"]},
            lambda r: r["message_id"] == row["message_id"],
        ),
        ({"startingTimestamp": str(at)}, lambda r: ms(r) >= at),
        ({"endingTimestamp": str(at)}, lambda r: ms(r) < at),
        (
            {"topic": json.dumps([topic]), "startingTimestamp": str(at)},
            lambda r: r["topic"] == topic and ms(r) >= at,
        ),
    ]  # fmt: skip
    return case.chance.sample(questions, 3)


# Commands that write.


def _kept_rows(case: Case, doing: Callable[[], str], fine: tuple[str, ...]) -> str:
    """Run what must not lose a readable message; ``fine`` are the results that report success."""
    before = case.rows(_PLACE, **_GOOD)
    # A read checks no CRC of properties. Recovery does, and takes such a last record for torn.
    has_more_crcs = case.base.properties.get("enabledAppendPropCRC") == "true"
    sound = _sound_rows(case) if has_more_crcs else {}
    end = doing()
    if before is None or end not in fine:
        return end
    after = case.rows(_PLACE, **_GOOD)
    if after is None and any("link inside" in one for one in case.done):
        return f"{end}, and a link to what it replaced"  # a "segment" that was an index file
    if after is None:
        raise WrongError(f"{end}: afterwards the store cannot be read")
    places, left = by_place(before), by_place(after)
    lost = sorted(places.keys() - left.keys())
    if has_more_crcs:
        lost = [place for place in lost if place != max(places) or place in sound]
    if end == "put":  # opening a crashed store cuts its tail, and keeps a copy of it
        kept = [int(path.name[:20]) for path in case.root.glob("_cut/*")]
        lost = [place for place in lost if place[0] < min(kept, default=1 << 63)]
    if lost:
        raise WrongError(f"{end}: {len(lost)} of {len(places)} rows are gone, {lost[:5]}")
    return end


def _recover(case: Case) -> str:
    return _kept_rows(case, lambda: _recovering(case), ("code 0",))


def _recovering(case: Case, *flags: str) -> str:
    unread = flushed_index(case)
    answer = case.cli("recover", case.root, *flags, "--format", "json", *case.config)
    if answer.code == 0:
        again = case.cli("recover", case.root, "--format", "json", *case.config)
        if again.code != 0:
            raise WrongError(f"recover: 0, and again {again.code}: {again.err[-400:]}")
        checked = case.cli("check", case.root, "--format", "json", *case.config)
        row, report = json.loads(answer.out), json.loads(checked.out or "{}")
        row["records"] = {r["commit_log_offset"] for r in case.rows(_PLACE, **_GOOD) or ()}
        # Records with damaged flags, by which they no longer belong to their queues.
        row["no_messages"] = {
            finding["commit_log_offset"]
            for finding in report.get("findings", ())
            if finding["kind"] == "unit disowned"
            and finding["commit_log_offset"] not in row["records"]
        }
        row["index_has_other_keys"] = any(
            finding["kind"] == "index entry" and finding["commit_log_offset"] in row["records"]
            for finding in report.get("findings", ())
        )
        wrong = [
            (finding["kind"], str(finding["examples"][:2]))
            for finding in report.get("findings", ())
            if finding["severity"] == "repairable" and not may_be_left(finding, row, unread)
        ]
        if wrong:
            raise WrongError(f"recover: 0, and check finds what can be repaired: {wrong}")
    return f"code {answer.code}"


def _recover_cut(case: Case) -> str:
    return _recovering(case, "--cut")


def _rebuild_queues(case: Case) -> str:
    def rebuild() -> str:
        flags = ["--accept-moved"] if case.chance.random() < 0.3 else []
        return f"code {case.cli('rebuild-queues', case.root, *flags, *case.config).code}"

    return _kept_rows(case, rebuild, ("code 0", "code 1", "code 3"))


def _rebuild_index(case: Case) -> str:
    def rebuild() -> str:
        return f"code {case.cli('rebuild-index', case.root, *case.config).code}"

    return _kept_rows(case, rebuild, ("code 0", "code 1", "code 3"))


def _salvage(case: Case) -> str:
    """The new store must be good and have every message that is readable."""
    out = case.place / "salvaged"
    answer = case.cli("salvage", case.root, out, "--format", "json", *case.config)
    if answer.code not in {0, 1} or not out.exists():
        return f"code {answer.code}"
    checked = case.cli("check", out, "--format", "json", *case.config)
    found = json.loads(checked.out or "{}")
    named = json.loads(answer.out.splitlines()[0])["undecodable_records"] if answer.out else []
    kinds = [
        (finding["severity"], finding["kind"], finding["examples"][:1])
        for finding in found.get("findings", ())
        if finding["severity"] != "information" and not _is_taken_over(finding, len(named))
    ]
    if kinds and found.get("checked", {}).get("records", 1):
        raise WrongError(f"salvage: {answer.code}, and check says {found.get('verdict')}: {kinds}")
    return f"code {answer.code}"


def _is_taken_over(finding: Mapping[str, Any], undecodable: int) -> bool:
    """Return whether salvage keeps it as it is: settings, named bodies, flags of the prepared."""
    if finding["kind"] == "body flags":
        return bool(finding["count"] <= undecodable)
    return finding["kind"] == "not queued" or finding["kind"].startswith("settings ")


def _clean_staging(case: Case) -> str:
    hours = case.chance.choice([0, 1, 24])
    return f"code {case.cli('clean-staging', case.root, '--older-than', hours).code}"


def _put(case: Case) -> str:
    """Load, put, get and shut down: acknowledged messages and earlier ones must be there."""
    return _kept_rows(case, lambda: _putting(case), ("put",))


def _putting(case: Case) -> str:
    config = MessageStoreConfig.from_properties(case.base.properties)
    config = replace(config, store_path_root_dir=str(case.root))
    store = MessageStore(config)
    try:
        store.load(cut=False)
        store.start()
    except OWN_ERRORS as err:
        store.shutdown()
        return type(err).__name__
    put = []
    try:
        for number in range(6):
            message = Message("Put", b"put %d" % number, queue_id=number % 2, keys=[f"p{number}"])
            result = store.put_message(message)
            if result.status.name == "PUT_OK":
                put.append((number, result.append_result))
        dispatched = store.wait_for_dispatch(20)
        if dispatched:
            _find_again(store, put)
    finally:
        store.shutdown()
    return "put" if put and dispatched else "refused"


def _find_again(store: MessageStore, put: list[tuple[int, Any]]) -> None:
    for number, where in put:
        found = store.get_message("g", "Put", number % 2, where.queue_offset, 1).messages
        if [message.body for message in found] != [b"put %d" % number]:
            raise WrongError(f"put {number} at {where.queue_offset}: get_message gives {found}")
        try:
            keyed = store.query_message("Put", f"p{number}", 32, *_FOREVER).messages
        except CorruptRecordError:  # an older file of the index is damaged, and reported
            continue
        if where.commit_log_offset not in [message.commit_log_offset for message in keyed]:
            raise WrongError(f"put {number}: query_message does not find it")


def _write(case: Case) -> str:
    """Run a job of the sink: all of it or nothing is stored, and nothing else is lost."""
    return _kept_rows(case, lambda: _writing(case), ("written",))


def _writing(case: Case) -> str:
    names = ("topic", "body", "keys")
    given = {"path": str(case.root), **case.base.options}
    written = batch_of(
        topic=["Put", "Put", "TopicA"], body=[b"w1", b"w2", b"w3"], keys=[["w1"], ["w2"], ["w3"]]
    )
    try:
        columns = resolve_sink_columns([(name, TYPES[name][0]) for name in names])
        plan = plan_write(parse_sink_options(given), columns)
        part = stage_part([written], plan, 0)
        commit = commit_parts(plan, [part], application="hostile", version=1)
    except (*OWN_ERRORS, SinkCommitError) as err:
        if not str(err).strip():
            raise WrongError(f"{type(err).__name__} without a word") from err
        return type(err).__name__
    if commit is None or commit.messages != 3:
        return "skipped"  # the ledger calls it committed, true or not
    rows = case.rows(("body",), mode="DROPMALFORMED", failOnDataLoss="false")
    bodies = [row["body"] for row in rows or () if row["body"] in {b"w1", b"w2", b"w3"}]
    if sorted(bodies) != [b"w1", b"w2", b"w3"]:
        raise WrongError(f"written were 3 messages, read are {sorted(bodies)}")
    return "written"


def _import(case: Case) -> str:
    return _kept_rows(case, lambda: spark_commands.import_(case), ("code 0", "code 1", "code 2"))


def _fork(case: Case) -> str:
    return _kept_rows(case, lambda: fork(case), ("put",))


def _staged_copy(case: Case) -> str:
    """Copy without Spark: stage the rows read and commit them to a new store."""
    from rmqsource.transfer.copy_store import COPIED_COLUMNS

    target = case.place / "copied"
    names = tuple(COPIED_COLUMNS)
    mode = case.chance.choice(["FAILFAST", "DROPMALFORMED"])
    options = {**case.options, "mode": mode, "failOnDataLoss": "false"}
    sink = {"path": str(target), "systemTopics": "true", "compatibility": "5"}
    sink.update(mappedFileSizeCommitLog="4m", maxHashSlotNum="100", maxIndexNum="400")
    sink["badRows"] = case.chance.choice(["fail", "drop"])
    try:
        columns = resolve_sink_columns(list(COPIED_COLUMNS.items()))
        plan = plan_write(parse_sink_options(sink), columns)
        part = stage_part(_record_batches(case, names, options), plan, 0)
        commit = commit_parts(plan, [part])
    except OWN_ERRORS as err:
        return type(err).__name__
    made = commit.messages if commit is not None else 0
    if made and sum(1 for _ in read_rows(target, ("queue_id",))) != made:
        raise WrongError(f"copied were {made} messages, and not as many are read")
    return "copied"


def _record_batches(case: Case, names: tuple[str, ...], options: Mapping[str, str]) -> Any:
    import pyarrow as pa

    for batch in read_batches(case.root, names, **options):
        yield pa.RecordBatch.from_arrays(list(batch.values()), names=list(batch))


COMMANDS: dict[str, Command] = {
    "info": Command(_info, True),
    "topics": Command(_topics, True),
    "messages": Command(_messages, True),
    "messages filtered": Command(_filtered, True),
    "check": Command(_check, True),
    "trace": Command(_trace, True),
    "report": Command(_report, True),
    "diff": Command(_diff, True),
    "recover --dry-run": Command(_dry_run, True),
    "tables": Command(_tables, True),
    "snapshot": Command(_snapshot, True),
    "rows agree": Command(_agree, True),
    "follow": Command(follow_store, True),
    "recover": Command(_recover, False),
    "recover --cut": Command(_recover_cut, False),
    "rebuild-queues": Command(_rebuild_queues, False),
    "rebuild-index": Command(_rebuild_index, False),
    "salvage": Command(_salvage, True),
    "clean-staging": Command(_clean_staging, False),
    "put": Command(_put, False),
    "write": Command(_write, False),
    "staged copy": Command(_staged_copy, True),
    "export": Command(spark_commands.export, True, spark_commands.prepare),
    "import": Command(_import, False, spark_commands.prepare),
    "copy": Command(spark_commands.copy, True, spark_commands.prepare),
    "fork": Command(_fork, False),
}
"""The commands by name."""
