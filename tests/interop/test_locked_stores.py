"""A store that RocketMQ has open is refused here, and RocketMQ refuses one that is open here."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from store_core import MessageStore, MessageStoreConfig, StoreLockedError
from tests.golden_store import golden
from tests.interop import java_oracle
from tests.store_core.crash.messages import make_message

pytestmark = pytest.mark.interop


@pytest.fixture
def opened(tmp_path):
    source = golden("onefile-5x")
    root = source.copy_to(tmp_path)
    shutil.copy(source.directory / "config.json", tmp_path)
    config = MessageStoreConfig.from_properties(source.config_properties)
    return root, replace(config, store_path_root_dir=str(root))


@pytest.mark.parametrize("api", java_oracle.APIS)
def test_rocketmq_has_it_open(opened, api):
    root, config = opened
    with java_oracle.hold(root, api=api) as process:
        who = f"process {process.pid} has" if api == "v5" else "another process has"
        with pytest.raises(StoreLockedError, match=who):
            MessageStore(config).load()
    with MessageStore(config) as store:
        assert store.put_message(make_message(0)).status.name == "PUT_OK"
    found = java_oracle.check(root, api=api)
    assert (found["ok"], found["messages"]) == (True, 6), json.dumps(found)


@pytest.mark.parametrize("api", java_oracle.APIS)
def test_rocketmq_refuses_one_that_is_open_here(opened, api):
    root, config = opened
    with MessageStore(config) as store:
        assert store.put_message(make_message(0)).status.name == "PUT_OK"
        with pytest.raises(java_oracle.OracleError, match="already started"):
            java_oracle.put(root, 1, 1, api=api)
        assert store.put_message(make_message(1)).status.name == "PUT_OK"
    found = java_oracle.check(root, api=api)
    assert (found["ok"], found["messages"]) == (True, 7), json.dumps(found)
