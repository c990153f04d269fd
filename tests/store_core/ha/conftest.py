# SPDX-License-Identifier: Apache-2.0
"""A log written here, for masters to serve and slaves to have."""

from __future__ import annotations

import pytest

from store_core.ha.ha_service import HAService
from store_core.message_store import MessageStore
from tests.store_core.ha import raw_slave
from tests.store_core.ha.raw_master import RawMaster
from tests.store_core.ha.stores import SEGMENT, log_bytes, put, store_config


@pytest.fixture(scope="session")
def written_log(tmp_path_factory):
    """The log of a store of 400 messages, and its root."""
    root = tmp_path_factory.mktemp("written") / "store"
    with MessageStore(store_config(root)) as store:
        put(store, 400)
        end = store.max_phy_offset
    return log_bytes(root)[:end]


@pytest.fixture
def slave(tmp_path):
    with MessageStore(store_config(tmp_path / "slave", broker_role="SLAVE")) as store:
        yield store


@pytest.fixture
def master(written_log):
    with RawMaster(written_log, SEGMENT) as made:
        yield made


@pytest.fixture
def live_master(tmp_path):
    """An open master of small segments, with some messages."""
    with MessageStore(raw_slave.store_config(tmp_path / "master")) as store:
        raw_slave.put(store, 30)
        yield store


@pytest.fixture
def service(live_master):
    """The service that sends its log."""
    with HAService(live_master, port=0) as service:
        yield service
