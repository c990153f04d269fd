# SPDX-License-Identifier: Apache-2.0
"""Topics whose bytes in the log are not UTF-8: RocketMQ names their queues as Java reads them."""

from __future__ import annotations

import shutil

import pytest

from store_core import MessageStore, StoreSnapshot
from tests.store_core.crash.messages import config_of, make_message

_COUNT = 24


@pytest.mark.parametrize("garbage", [b"\xff", b"\xc3", b"\xed\xa0\x80"])
@pytest.mark.parametrize("crashed", [False, True])
def test_a_message_of_such_a_topic_is_delivered(tmp_path, garbage, crashed):
    config = config_of(tmp_path)
    with MessageStore(config) as store:
        for number in range(_COUNT):
            store.put_message(make_message(number))
        store.wait_for_dispatch()
    (path,) = (tmp_path / "commitlog").iterdir()
    data = bytearray(path.read_bytes())
    at = data.rindex(b"TopicA") + 6 - len(garbage)
    data[at : at + len(garbage)] = garbage
    path.write_bytes(data)
    name = (b"TopicA"[: -len(garbage)] + garbage).decode(errors="replace")
    if len(garbage) == 3:
        name = "Top\ufffd"
    shutil.rmtree(tmp_path / "consumequeue")
    if crashed:
        (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    with MessageStore(config) as store:
        store.wait_for_dispatch()
    with MessageStore(config) as store:
        (queue,) = (tmp_path / "consumequeue" / name).iterdir()
        queue_id = int(queue.name)
        (found,) = store.get_message("g", name, queue_id, 0, 32).messages
    with StoreSnapshot(tmp_path, config) as snapshot:
        (same,) = snapshot.get_message("g", name, queue_id, 0, 32).messages
        assert same.body == found.body
