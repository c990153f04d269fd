from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmqnet.client.consumer.offset_store import LocalFileOffsets, OffsetStore
from rmqnet.client.message_queue import MessageQueue
from rmqnet.errors import ClientError

FIRST, SECOND = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-b", 1)
OTHER = MessageQueue("u", "broker-a", 0)


class _Kept:
    def __init__(self) -> None:
        self.offsets: dict[MessageQueue, int] = {}

    async def read(self, queue: MessageQueue) -> int | None:
        return self.offsets.get(queue)

    async def write(self, offsets: dict[MessageQueue, int], *, wait: bool) -> None:
        self.offsets.update(offsets)


def test_forward_only_unless_told_otherwise() -> None:
    store = OffsetStore(_Kept())
    store.update(FIRST, 5, only_forward=True)
    store.update(FIRST, 3, only_forward=True)
    assert store.get(FIRST) == 5
    store.update(FIRST, 3, only_forward=False)
    assert store.get(FIRST) == 3
    assert store.get(SECOND) is None


def test_frozen_until_removed() -> None:
    store = OffsetStore(_Kept())
    store.update_and_freeze(FIRST, 9)
    store.update(FIRST, 20, only_forward=True)
    store.update(FIRST, 2, only_forward=False)
    assert store.get(FIRST) == 9
    store.remove(FIRST)
    assert store.get(FIRST) is None
    store.update(FIRST, 2, only_forward=True)
    assert store.get(FIRST) == 2


def test_only_own_queues_are_kept() -> None:
    kept = _Kept()
    store = OffsetStore(kept)
    for offset, queue in enumerate((FIRST, SECOND, OTHER), 1):
        store.update(queue, offset, only_forward=True)
    asyncio.run(store.persist([FIRST, OTHER, MessageQueue("t", "broker-c", 0)]))
    assert kept.offsets == {FIRST: 1, OTHER: 3}
    assert store.table("t") == {FIRST: 1, SECOND: 2}
    assert asyncio.run(store.read(SECOND)) is None
    kept.offsets[SECOND] = 40
    assert asyncio.run(store.read(SECOND)) == 40
    assert store.get(SECOND) == 40


def test_a_file_as_rocketmq_writes_it(tmp_path: Path) -> None:
    # Written by LocalFileOffsetStore of release 5.3.3.
    text = (
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"t"\n'
        '\t\t}:17,{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"u"\n\t\t}:3\n\t}\n}'
    )
    path = tmp_path / "id" / "group" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    file = LocalFileOffsets(path)
    assert [asyncio.run(file.read(queue)) for queue in (FIRST, OTHER, SECOND)] == [17, 3, None]
    asyncio.run(file.write({FIRST: 18, SECOND: 1}))
    assert path.with_name("offsets.json.bak").read_text() == text
    written = path.read_text()
    for entry in (
        '{"topic":"t","brokerName":"broker-a","queueId":0}:18',
        '{"topic":"u","brokerName":"broker-a","queueId":0}:3',
        '{"topic":"t","brokerName":"broker-b","queueId":1}:1',
    ):
        assert entry in written
    assert written.startswith('{"offsetTable":{{')


def test_a_new_file(tmp_path: Path) -> None:
    file = LocalFileOffsets(tmp_path / "none" / "offsets.json")
    assert asyncio.run(file.read(FIRST)) is None
    asyncio.run(file.write({FIRST: 1}))
    assert asyncio.run(file.read(FIRST)) == 1
    assert [each.name for each in (tmp_path / "none").iterdir()] == ["offsets.json"]


@pytest.mark.parametrize("damage", ["", "{", '{"offsetTable":{"a":1}}', '{"offsetTable":3}'])
def test_damage_the_backup_is_read(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "offsets.json"
    file = LocalFileOffsets(path)
    for offset in (1, 2):
        asyncio.run(file.write({FIRST: offset}))
    path.write_text(damage)
    assert asyncio.run(file.read(FIRST)) == 1
    path.with_name("offsets.json.bak").write_text('{"offsetTable":[]}')
    with pytest.raises(ClientError, match=r"neither .*offsets\.json nor .*bak is a file of offs"):
        asyncio.run(file.read(FIRST))


def test_what_cannot_be_written_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    asyncio.run(LocalFileOffsets(tmp_path / "file" / "offsets.json").write({FIRST: 1}))
    assert "offsets are not kept" in caplog.text
