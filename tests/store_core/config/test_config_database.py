# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from store_core.config.config_database import (
    CONSUMER_OFFSETS,
    GROUPS,
    TOPICS,
    config_databases,
    settings_of_databases,
)
from store_core.config.config_files import (
    load_consumer_offsets,
    load_subscription_groups,
    load_topics,
)
from store_core.database.rocksdb_layout import (
    CONSUMER_OFFSET_TABLE,
    DEFAULT_FAMILY,
    GROUP_TABLE,
    TOPIC_TABLE,
    VERSION_FAMILY,
    VERSION_KEY,
    table_prefix,
)
from store_core.errors import StoreFormatError
from store_core.files.store_directory import StoreDirectory


def database(path: Path, items: dict[bytes, bytes], version: bytes | None = None) -> None:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = Rdict(str(path), options)
    for key, value in items.items():
        made[key] = value
    if version is not None:
        made.create_column_family(VERSION_FAMILY, Options(raw_mode=True))[VERSION_KEY] = version
    made.close()


def short(name: bytes) -> bytes:
    return struct.pack(">H", len(name)) + name


def version_of(counter: int) -> bytes:
    return json.dumps({"counter": counter, "stateVersion": 0, "timestamp": 7}).encode()


@pytest.fixture
def version_1(tmp_path: Path) -> StoreDirectory:
    config = tmp_path / "config"
    topic = {"topicName": "a", "readQueueNums": 3, "writeQueueNums": 4, "perm": 6}
    database(config / "topics", {b"a": json.dumps(topic).encode()}, version_of(5))
    group = {"groupName": "g", "retryMaxTimes": 2}
    database(config / "subscriptionGroups", {b"g": json.dumps(group).encode()}, version_of(5))
    database(
        config / "consumerOffsets",
        {b"a@g": b'{"offsetTable":{0:12,1:13}}', "ü@g".encode(): b'{"offsetTable":{}}'},
    )
    return StoreDirectory(str(tmp_path))


@pytest.fixture
def version_2(tmp_path: Path) -> StoreDirectory:
    offsets = table_prefix(CONSUMER_OFFSET_TABLE)
    items = {
        table_prefix(TOPIC_TABLE) + short(b"a"): b'\1{"topicName":"a","writeQueueNums":4}',
        table_prefix(GROUP_TABLE) + short(b"g"): b'\1{"groupName":"g","retryMaxTimes":2}',
        offsets + short(b"g") + b"\1" + short(b"a") + b"\1" + struct.pack(">i", 0): bytes(7)
        + b"\x0c",
        offsets + short(b"g") + b"\1" + short(b"a") + b"\1" + struct.pack(">i", 1): bytes(7)
        + b"\x0d",
        b"\1" + struct.pack(">H", TOPIC_TABLE) + b"\1data_version": bytes(24),
    }
    database(tmp_path / "config" / "rdb", items)
    return StoreDirectory(str(tmp_path))


@pytest.mark.parametrize("version", ["version_1", "version_2"])
def test_settings(version: str, request: pytest.FixtureRequest) -> None:
    directory = request.getfixturevalue(version)
    topics, groups = load_topics(directory) or {}, load_subscription_groups(directory) or {}
    assert {name: topic.write_queue_nums for name, topic in topics.items()} == {"a": 4}
    assert {name: group.retry_max_times for name, group in groups.items()} == {"g": 2}
    assert load_consumer_offsets(directory)["g", "a"] == {0: 12, 1: 13}
    assert len(config_databases(directory)) == (3 if version == "version_1" else 1)


def write_topics(directory: StoreDirectory, counter: int) -> None:
    data = {
        "dataVersion": {"counter": counter, "stateVersion": 0, "timestamp": 1},
        "topicConfigTable": {"of the file": {"topicName": "of the file"}},
    }
    Path(directory.resolve("config", "topics.json")).write_text(json.dumps(data), "utf-8")


@pytest.mark.parametrize(("counter", "expected"), [(4, "a"), (5, "a"), (6, "of the file")])
def test_a_file_counts_where_it_has_changed_more_often(
    version_1: StoreDirectory, counter: int, expected: str
) -> None:
    write_topics(version_1, counter)
    assert list(load_topics(version_1) or {}) == [expected]


def test_of_version_2_no_file_counts(version_2: StoreDirectory) -> None:
    write_topics(version_2, 1 << 60)
    assert list(load_topics(version_2) or {}) == ["a"]


def test_a_damaged_file_beside_a_database_does_not_matter(version_1: StoreDirectory) -> None:
    Path(version_1.resolve("config", "topics.json")).write_bytes(b"{")
    assert list(load_topics(version_1) or {}) == ["a"]


def test_light_queues_have_their_offsets_in_a_file(version_1: StoreDirectory) -> None:
    light = Path(version_1.resolve("config", "lmqConsumerOffset.json"))
    light.write_text('{"lmqOffsetTable":{"%LMQ%x@g":5}}', "utf-8")
    assert load_consumer_offsets(version_1)["g", "%LMQ%x"] == {0: 5}


@pytest.mark.usefixtures("without_rocksdict")
def test_without_the_library_files_count(version_1: StoreDirectory) -> None:
    assert settings_of_databases(version_1, TOPICS) is None
    assert load_topics(version_1) is None
    write_topics(version_1, 1)
    assert list(load_topics(version_1) or {}) == ["of the file"]


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        (TOPICS, table_prefix(TOPIC_TABLE) + short(b"b"), b"\2protobuf"),
        (TOPICS, table_prefix(TOPIC_TABLE) + short(b"b"), b"\1[]"),
        (TOPICS, table_prefix(TOPIC_TABLE) + short(b"b") + b"rest", b"\1{}"),
        (GROUPS, table_prefix(GROUP_TABLE) + b"\0", b"\1{}"),
        (GROUPS, table_prefix(GROUP_TABLE) + b"\0\5abc", b"\1{}"),
        (CONSUMER_OFFSETS, table_prefix(CONSUMER_OFFSET_TABLE) + short(b"g"), bytes(8)),
        (
            CONSUMER_OFFSETS,
            table_prefix(CONSUMER_OFFSET_TABLE) + short(b"g") + b"\1" + short(b"b") + b"\1\0\0\0\0",
            bytes(7),
        ),
    ],
)
def test_what_no_broker_writes_is_named(
    version_2: StoreDirectory, table: object, key: bytes, value: bytes
) -> None:
    path = version_2.resolve("config", "rdb")
    made = Rdict(path)
    made.get_column_family(DEFAULT_FAMILY)[key] = value
    made.close()
    with pytest.raises(StoreFormatError, match="config/rdb: not what a broker writes"):
        settings_of_databases(version_2, table)  # type: ignore[arg-type]


def single_database(root: Path, counter: int = 5) -> None:
    """Write a database of 5.5.1's ``useSingleRocksDBForAllConfigs``: two families for a kind."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    (root / "config").mkdir(parents=True, exist_ok=True)
    made = Rdict(str(root / "config" / "metadata"), options)
    for family, key, value in (
        ("topic", b"a", {"topicName": "a", "readQueueNums": 3}),
        ("subscriptionGroup", b"g", {"groupName": "g", "retryMaxTimes": 2}),
        ("consumerOffset", b"a@g", {"offsetTable": {"0": 7}}),
    ):
        made.create_column_family(family, Options(raw_mode=True))[key] = json.dumps(value).encode()
        version = made.create_column_family(f"{family}Version", Options(raw_mode=True))
        version[VERSION_KEY] = version_of(counter)
    made.close()


def test_one_database_for_all_settings(tmp_path):
    single_database(tmp_path)
    directory = StoreDirectory(str(tmp_path))
    assert load_topics(directory)["a"].read_queue_nums == 3
    assert load_subscription_groups(directory)["g"].retry_max_times == 2
    assert load_consumer_offsets(directory) == {("g", "a"): {0: 7}}
    assert [Path(path).name for path in config_databases(directory)] == ["metadata"]


@pytest.mark.parametrize(("counter", "queues"), [(4, 9), (6, 3)])
def test_the_newer_of_the_single_database_and_one_of_its_own_counts(tmp_path, counter, queues):
    single_database(tmp_path, counter)
    topic = json.dumps({"topicName": "a", "readQueueNums": 9}).encode()
    database(tmp_path / "config" / "topics", {b"a": topic}, version_of(5))
    assert load_topics(StoreDirectory(str(tmp_path)))["a"].read_queue_nums == queues


def test_a_damaged_database_counts_as_missing_with_a_warning(tmp_path, caplog):
    (tmp_path / "config" / "metadata").mkdir(parents=True)
    (tmp_path / "config" / "metadata" / "CURRENT").write_text("MANIFEST-000001\n")
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":{"a":{}}}')
    assert list(load_topics(StoreDirectory(str(tmp_path)))) == ["a"]
    assert "config/metadata" in caplog.text
    assert "treated as missing" in caplog.text
