# SPDX-License-Identifier: Apache-2.0
"""The page of a store with queues in a database: it uses the log, the rest is not known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")

from rmqsource.options.source_options import options_for
from rmqsource.report.page import report_page
from rmqsource.report.report_data import ReportData, collect
from rmqsource.report.verdict import GOOD, LOOK, Judgement, verdict
from store_core import Message, MessageStore, MessageStoreConfig
from store_core.topics import HALF_TOPIC
from tests.golden_kinds import IN_DATABASE, KINDS, MESSAGES, OPTIONS, unpack_kind
from tests.golden_store import golden
from tests.rmqsource.cli.command_line import Run

pytestmark = pytest.mark.usefixtures("without_rocksdict")
SOURCE_OPTIONS = [
    text for name, value in OPTIONS.items() for text in ("--option", f"{name}={value}")
]


def findings_of(*roots: Path) -> ReportData:
    return collect(options_for([str(root) for root in roots], OPTIONS))


def line(found: ReportData, subject: str) -> Judgement:
    (one,) = (one for one in verdict(found, 0) if one.subject == subject)
    return one


@pytest.mark.parametrize("name", IN_DATABASE)
def test_messages_are_told_and_lag_is_not_known(tmp_path: Path, name: str) -> None:
    found = findings_of(unpack_kind(name, tmp_path))
    assert dict(zip(found.topics["topic"], found.topics["messages"])) == MESSAGES
    assert found.topics["bytes"].sum() == found.counts.bytes
    assert found.topics["bytes_share"].sum() == pytest.approx(1)
    assert found.standings[0].last_ms is not None
    assert (line(found, "Not read").state, line(found, "Consumer lag").state) == (LOOK, LOOK)
    assert "The queues are in a RocksDB database" in line(found, "Not read").text
    assert line(found, "Consumer lag").text.startswith("Not known")
    assert line(found, "Transactions").state == GOOD
    page = report_page(found, 0)
    assert "No consumer group is behind" not in page
    assert "with an offset" not in page
    assert "<b>90</b>messages in the log" in page


def test_numbers_of_the_log_are_those_of_the_queues(tmp_path: Path) -> None:
    database, files = (unpack_kind(n, tmp_path / n) for n in ("rocksdb-5x", "tiered-5x"))
    ours, theirs = findings_of(database).topics, findings_of(files).topics
    columns = ["topic", "messages", "bytes", "kind"]
    held = theirs[theirs["messages"] > 0]
    assert ours[columns].to_dict("records") == held[columns].to_dict("records")
    assert ours["queues"].le(4).all()


@pytest.mark.parametrize("name", KINDS)
def test_the_command_is_content(run: Run, tmp_path: Path, name: str) -> None:
    root, target = unpack_kind(name, tmp_path), tmp_path / "page.json"
    answer = run("report", root, *SOURCE_OPTIONS, "-o", target, "--format", "json")
    assert answer.code == 0, answer.err
    assert "damage" not in answer.err
    data: dict[str, Any] = json.loads(target.read_text("utf-8"))
    assert data["messages"] == sum(MESSAGES.values())
    assert data["lag_is_known"] == (name not in IN_DATABASE)
    assert data["transactions_are_known"]
    told = [one["subject"] for one in data["verdict"]].count("Not read")
    assert told == (name not in ("compaction-5x", "dledger-5x"))


def test_a_store_beside_one_of_files(tmp_path: Path) -> None:
    found = findings_of(unpack_kind("rocksdb-5x", tmp_path), golden("empty-5x").root)
    assert not found.lag_is_known
    (one,) = (one for one in verdict(found, 0) if one.subject.startswith("Not read"))
    assert one.subject.startswith("Not read of ")


def test_transactions_of_which_the_end_is_in_a_database(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore(MessageStoreConfig(store_path_root_dir=str(root))) as store:
        store.put_message(Message(HALF_TOPIC, b"half", queue_id=0))
    settings = unpack_kind("rocksdb-5x", tmp_path / "other") / "config"
    shutil.copytree(settings, root / "config", dirs_exist_ok=True)
    found = collect(options_for(str(root), {}))
    assert not found.transactions_are_known
    one = line(found, "Transactions")
    assert one.state == LOOK
    assert "not known" in one.text
    page = report_page(found, 0)
    assert "Transactions are not known" in page
    assert "No transaction." not in page


def test_a_log_of_dledger_is_told_as_any_other(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    answer = run("report", unpack_kind("dledger-5x", tmp_path), *SOURCE_OPTIONS, "-o", target)
    assert answer.code == 0
    assert "Not read" not in target.read_text("utf-8")
