# SPDX-License-Identifier: Apache-2.0
"""Findings of a check about files of settings, and RocketMQ's own reading of the files."""

from __future__ import annotations

import pytest

from store_core.files.store_directory import StoreDirectory
from store_core.tools.check.config_check import check_config
from store_core.tools.check.findings import Findings

NEEDED = [
    "topics.json",
    "topicQueueMapping.json",
    "consumerOffset.json",
    "lmqConsumerOffset.json",
    "subscriptionGroup.json",
    "consumerFilter.json",
    "consumerOrderInfo.json",
    "delayOffset.json",
    "timermetrics",
]
OPTIONAL = ["transactionMetrics", "messageRequestMode.json"]
GOOD, ZEROS, TORN = b"{}", b"\0" * 100, b'{"dataVersion":{"coun'


def found(root) -> dict[str, tuple[str, ...]]:
    """Return the kinds and places of findings, and the words of each."""
    findings = Findings()
    check_config(StoreDirectory(str(root)), findings)
    return {
        f"{each.kind.name} {each.place.rpartition('/')[2]}": each.examples
        for each in findings.sorted()
    }


def write(root, name, main, backup):
    (root / "config").mkdir(exist_ok=True)
    for suffix, content in (("", main), (".bak", backup)):
        if content is not None:
            (root / "config" / (name + suffix)).write_bytes(content)


@pytest.mark.parametrize("broken", [ZEROS, TORN, b"x", b"[]"])
@pytest.mark.parametrize("name", [*NEEDED, *OPTIONAL])
def test_a_broker_forgets_a_file_that_cannot_be_read(tmp_path, name, broken):
    write(tmp_path, name, broken, None)
    assert list(found(tmp_path)) == [f"SETTINGS_LOST {name}"]
    reason, lost = found(tmp_path)[f"SETTINGS_LOST {name}"]
    assert f"config/{name}: not what a broker writes" in reason
    assert lost.startswith("lost: ")


@pytest.mark.parametrize("name", [*NEEDED, *OPTIONAL])
def test_a_broker_takes_the_backup(tmp_path, name):
    write(tmp_path, name, TORN, GOOD)
    assert list(found(tmp_path)) == [f"SETTINGS_OLD {name}"]


@pytest.mark.parametrize("main", [ZEROS, None, b""])
@pytest.mark.parametrize("name", NEEDED)
def test_a_broker_does_not_start_without_a_backup_that_can_be_read(tmp_path, name, main):
    write(tmp_path, name, main, ZEROS)
    place = name if main else f"{name}.bak"
    assert list(found(tmp_path)) == [f"SETTINGS_STOP {place}"]


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_broker_starts_without_what_it_only_counts(tmp_path, name):
    write(tmp_path, name, ZEROS, ZEROS)
    assert list(found(tmp_path)) == [f"SETTINGS_LOST {name}"]


def test_a_broken_backup_of_a_good_file_is_only_mentioned(tmp_path):
    write(tmp_path, "topics.json", GOOD, TORN)
    assert list(found(tmp_path)) == ["SETTINGS_BACKUP topics.json.bak"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("topics.json", b'{"topicConfigTable":{"t":{"perm":"six"}}}'),
        ("consumerOffset.json", b'{"offsetTable":{"t@g":{0:"x"}}}'),
        ("delayOffset.json", b'{"offsetTable":{"x":1}}'),
        ("subscriptionGroup.json", b'{"subscriptionGroupTable":{"g":3}}'),
        ("consumerFilter.json", b'{"filterDataByTopic":{"t":null}}'),
        ("messageRequestMode.json", b'{"messageRequestModeMap":3}'),
        ("consumerOrderInfo.json", b'{"table":{"t@g":3}}'),
        ("topics.json", b'{"dataVersion":3}'),
    ],
)
def test_json_that_is_no_such_file(tmp_path, name, content):
    write(tmp_path, name, content, None)
    assert list(found(tmp_path)) == [f"SETTINGS_LOST {name}"]


def test_good_empty_and_missing_files(tmp_path):
    assert found(tmp_path) == {}
    write(tmp_path, "topics.json", b"\xef\xbb\xbf{/* all */'topicConfigTable':{},}", b"")
    write(tmp_path, "consumerOffset.json", b"", None)
    write(tmp_path, "delayOffset.json", None, GOOD)
    assert found(tmp_path) == {}
