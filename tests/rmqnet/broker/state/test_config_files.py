# SPDX-License-Identifier: Apache-2.0
"""The files that managers load and save, against those of real brokers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.state.consumer_offset_manager import ConsumerOffsetManager
from rmqnet.broker.state.subscription_group_manager import SubscriptionGroupManager
from rmqnet.broker.state.topic_config_manager import TopicConfigManager
from store_core.config.config_files import TopicConfig
from store_core.config.lenient_json import parse_lenient_json
from store_core.errors import StoreFormatError, StoreWriteError
from store_core.files import file_writing
from tests.golden_store import golden

MANAGERS = [TopicConfigManager, SubscriptionGroupManager, ConsumerOffsetManager]
CLUSTERS = ["cluster-4x", "cluster-5x", "cluster-5x-ext"]


def manager_at(cls, root, **options):
    return cls(BrokerConfig(broker_name="b"), str(root), lambda: 5_000, **options)


def copied(tmp_path, name, cls):
    shutil.copytree(golden(name).root / "config", tmp_path / "config")
    return tmp_path / "config" / cls.FILE_NAME


def write(root, cls, text, suffix=""):
    path = root / "config" / (cls.FILE_NAME + suffix)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("cls", MANAGERS)
def test_what_a_broker_wrote_is_all_there_after_a_save(tmp_path, name, cls):
    path = copied(tmp_path, name, cls)
    written = path.read_bytes()
    manager = manager_at(cls, tmp_path)
    manager.load()
    manager.persist()
    before, after = parse_lenient_json(written.decode()), parse_lenient_json(path.read_text())
    assert Path(f"{path}.bak").read_bytes() == written
    for table, entries in before.items():
        for key, written_entry in entries.items():
            found, entry = after[table][key], written_entry
            if isinstance(entry, list):  # sets, in any order
                found, entry = sorted(found), sorted(entry)
            if isinstance(entry, dict):  # 4.x wrote fewer fields
                found = {field: found[field] for field in entry}
            assert found == entry, (table, key)
    if "dataVersion" in before:
        assert manager.data_version.counter == before["dataVersion"]["counter"]


@pytest.mark.parametrize("name", ["cluster-5x", "cluster-5x-ext"])
@pytest.mark.parametrize("cls", MANAGERS)
def test_the_form_is_that_of_a_broker(tmp_path, name, cls):
    """Equal line by line, except for the order of the entries of a table (Java's hashes)."""
    path = copied(tmp_path, name, cls)
    written = path.read_text()
    manager = manager_at(cls, tmp_path)
    manager.load()
    manager.persist()
    lines = [line.rstrip(",") for line in path.read_text().splitlines()]
    for line in written.splitlines():
        if ":[" not in line:
            assert line.rstrip(",") in lines


@pytest.mark.parametrize("cls", MANAGERS)
def test_without_a_file_nothing_is_known_but_a_brokers_own(tmp_path, cls):
    manager = manager_at(cls, tmp_path)
    manager.load()
    assert manager.data_version.counter == 0
    assert not (tmp_path / "config").exists()
    manager.persist()
    assert sorted(path.name for path in (tmp_path / "config").iterdir()) == [cls.FILE_NAME]


@pytest.mark.parametrize("cls", MANAGERS)
@pytest.mark.parametrize("text", ["", " \n", "{", "[]", '{"dataVersion":7}', '{"dataVersion":{"'])
def test_a_torn_file_is_loaded_from_its_backup_which_stays_until_the_file_is_whole(
    tmp_path, cls, text
):
    sound = '{"dataVersion":{"counter":9,"timestamp":1},"kept":{"a":[1]}}'
    path = write(tmp_path, cls, text)
    backup = write(tmp_path, cls, sound, ".bak")
    manager = manager_at(cls, tmp_path)
    manager.load()
    assert manager.data_version.counter == 9
    manager.persist()
    assert backup.read_text() == sound
    saved = path.read_text()
    assert json.loads(saved)["kept"] == {"a": [1]}
    manager.assign({})
    manager.persist()
    assert backup.read_text() == saved


@pytest.mark.parametrize("cls", MANAGERS)
def test_a_torn_file_without_a_backup_is_refused_and_stays(tmp_path, cls):
    path = write(tmp_path, cls, '{"dataVersion":{"counter":9')
    with pytest.raises(StoreFormatError, match=cls.FILE_NAME):
        manager_at(cls, tmp_path).load()
    assert path.read_text() == '{"dataVersion":{"counter":9'


@pytest.mark.parametrize(
    ("cls", "data"),
    [
        (TopicConfigManager, {"topicConfigTable": {"t": {"perm": "six"}}}),
        (TopicConfigManager, {"topicConfigTable": [1]}),
        (SubscriptionGroupManager, {"subscriptionGroupTable": {"g": {"consumeEnable": "on"}}}),
        (SubscriptionGroupManager, {"forbiddenTable": {"g": {"t": "x"}}}),
        (ConsumerOffsetManager, {"offsetTable": {"t@g": None}}),
        (ConsumerOffsetManager, {"offsetTable": {"t@g": {0: None}}}),
        (ConsumerOffsetManager, {"dataVersion": {"counter": "x"}}),
    ],
)
def test_what_is_wrong_is_refused_whole(tmp_path, cls, data):
    manager = manager_at(cls, tmp_path)
    before = manager.to_json()
    with pytest.raises(ValueError, match="expected"):
        manager.assign({"dataVersion": {"counter": 3}, **data})
    assert manager.to_json() == before


@pytest.mark.parametrize("cls", MANAGERS)
def test_fields_that_nobody_knows_stay(tmp_path, cls):
    text = (
        '{"future":{"x":[1,{"y":null}]},'
        '"topicConfigTable":{"t":{"topicName":"t","colour":"red"}},'
        '"subscriptionGroupTable":{"g":{"groupName":"g","subscriptionDataSet":[{"topic":"t"}]}}}'
    )
    path = write(tmp_path, cls, text)
    manager = manager_at(cls, tmp_path)
    manager.load()
    if cls is TopicConfigManager:
        manager.create_in_send_message_back("t", 1, order=True)
    manager.persist()
    saved = json.loads(path.read_text())
    assert saved["future"] == {"x": [1, {"y": None}]}
    assert saved["topicConfigTable"]["t"]["colour"] == "red"
    groups = saved["subscriptionGroupTable"]
    assert groups["g"]["subscriptionDataSet"] == [{"topic": "t"}]


@pytest.mark.parametrize("cls", MANAGERS)
def test_a_file_that_is_taken_away_meanwhile_is_written_anew(tmp_path, cls):
    path = copied(tmp_path, "cluster-5x", cls)
    manager = manager_at(cls, tmp_path)
    manager.load()
    path.unlink()
    manager.persist()
    assert path.exists()


@pytest.mark.parametrize("cls", MANAGERS)
def test_read_only_nothing_is_written(tmp_path, cls):
    path = copied(tmp_path, "cluster-5x", cls)
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    manager = manager_at(cls, tmp_path, is_read_only=True)
    manager.load()
    manager.persist()
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == before


def test_what_is_nested_too_deeply_to_be_written_stays(tmp_path):
    path = write(tmp_path, TopicConfigManager, '{"topicConfigTable":{}}')
    topics = manager_at(TopicConfigManager, tmp_path)
    topics.load()
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    topics.assign({"future": nested})
    with pytest.raises(StoreFormatError, match="nested too deeply"):
        topics.persist()
    assert path.read_text() == '{"topicConfigTable":{}}'


def test_a_full_disk_is_told_to_administrators_and_does_not_stop_clients(tmp_path, monkeypatch):
    topics, groups = (manager_at(cls, tmp_path) for cls in MANAGERS[:2])
    heard = []
    topics.on_change(lambda config: heard.append(config.topic_name))

    def is_full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rmqnet.broker.state.config_manager.replace_file", is_full)
    assert topics.create_in_send_message("t", "TBW102", "c", 4) is not None
    assert topics.create_in_send_message_back("%RETRY%g", 1) is not None
    assert groups.find("g") is not None
    with pytest.raises(StoreWriteError, match=r"topics\.json: No space left"):
        topics.update(TopicConfig("u"), {})
    assert heard == ["t", "%RETRY%g", "u"]
    monkeypatch.undo()
    topics.update(TopicConfig("v"), {})
    later = manager_at(TopicConfigManager, tmp_path)
    later.load()
    assert {"t", "u", "v", "%RETRY%g"} < set(later.all())


class DiesError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("cls", MANAGERS)
@pytest.mark.parametrize("lives", range(12))
def test_a_process_that_dies_in_a_save_leaves_the_old_content_or_the_new(
    tmp_path, monkeypatch, cls, lives
):
    path = copied(tmp_path, "cluster-5x", cls)
    manager = manager_at(cls, tmp_path)
    manager.load()
    with manager._lock:
        manager._count_version()
    wanted = (manager.data_version.counter - 1, manager.data_version.counter)
    left = [lives]

    def dies(real):
        def call(*args):
            left[0] -= 1
            if left[0] < 0:
                raise DiesError
            return real(*args)

        return call

    for module, name in (
        (file_writing.os, "replace"),
        (file_writing.os, "fsync"),
        (file_writing, "write_all"),
        (file_writing, "open_to_write"),
    ):
        monkeypatch.setattr(module, name, dies(getattr(module, name)))
    try:
        manager.persist()
    except DiesError:
        assert lives < 11
    monkeypatch.undo()
    later = manager_at(cls, tmp_path)
    later.load()
    assert later.data_version.counter in wanted
    assert path.exists()
