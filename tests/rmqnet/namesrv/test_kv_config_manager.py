from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqnet.errors import ClientError
from rmqnet.namesrv.kv_config_manager import KVConfigManager
from store_core.errors import StoreWriteError


def test_values_come_and_go() -> None:
    values = KVConfigManager()
    assert values.get("space", "colour") is None
    assert values.table("space") is None
    values.put("space", "colour", "blau ü")
    values.put("space", "colour", "red")
    values.put("space", "size", "")
    assert values.get("space", "colour") == "red"
    assert values.table("space") == {"colour": "red", "size": ""}
    values.delete("space", "colour")
    values.delete("space", "colour")
    values.delete("none", "colour")
    assert values.table("space") == {"size": ""}
    assert values.table("none") is None


def test_they_are_kept_in_the_file_that_rocketmq_reads(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    values = KVConfigManager(str(path))
    assert not path.exists()
    values.put("space", "colour", "blau ü \ud800")
    assert json.loads(path.read_text()) == {"configTable": {"space": {"colour": "blau ü \ud800"}}}
    again = KVConfigManager(str(path))
    assert again.get("space", "colour") == "blau ü \ud800"
    again.delete("space", "colour")
    assert KVConfigManager(str(path)).table("space") == {}
    assert [each.name for each in path.parent.iterdir()] == ["kvConfig.json"]


def test_a_file_of_rocketmq_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"t":"a:2;b:2"}}}')
    assert KVConfigManager(str(path)).get("ORDER_TOPIC_CONFIG", "t") == "a:2;b:2"
    path.write_text("")
    assert KVConfigManager(str(path)).table("ORDER_TOPIC_CONFIG") is None


@pytest.mark.parametrize("text", ["[]", "{", '{"configTable":[]}', '{"configTable":{"n":1}}'])
def test_another_file_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(text)
    with pytest.raises(ClientError, match=str(path)):
        KVConfigManager(str(path))
    with pytest.raises(ClientError, match=str(tmp_path)):
        KVConfigManager(str(tmp_path))


def test_a_value_that_cannot_be_kept_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    values = KVConfigManager(str(tmp_path / "kvConfig.json"))
    (tmp_path / "kvConfig.json.tmp").mkdir()
    with pytest.raises(StoreWriteError):
        values.put("space", "colour", "red")
    assert values.table("space") is None
