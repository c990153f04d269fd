# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rmqnet.client.consumer.offset_store import LocalFileOffsets, OffsetStore
from rmqnet.client.consumer.process_queue import NO_OFFSET, CacheLimits, ProcessQueue
from rmqnet.client.message_queue import MessageQueue
from rmqnet.errors import ClientError
from store_core.message import Message

QUEUE = MessageQueue("t", "broker-a", 0)
FIRST, SECOND = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-b", 1)
OTHER = MessageQueue("u", "broker-a", 0)


class _Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def _process_queue(clock: _Clock | None = None, **limits: int | None) -> ProcessQueue:
    return ProcessQueue(QUEUE, CacheLimits(**limits), clock or _Clock())


def _messages(*offsets: int, size: int = 1) -> list[Message]:
    return [Message("t", b"x" * size, queue_offset=offset) for offset in offsets]


def test_the_first_that_is_not_done_with_is_committed() -> None:
    queue = _process_queue()
    first, second, third, fourth = messages = _messages(5, 6, 8, 9)
    queue.put(messages)
    assert queue.remove([second]) == 5
    assert queue.remove([fourth]) == 5
    assert queue.remove([first]) == 8
    assert (queue.count, queue.size_bytes, queue.span) == (1, 1, 0)
    assert queue.remove([third]) == 10
    assert queue.remove([third]) == NO_OFFSET
    assert (queue.count, queue.size_bytes, queue.span) == (0, 0, 0)


def test_an_offset_that_comes_again_replaces_the_first() -> None:
    queue = _process_queue()
    queue.put(_messages(3, 4, 5, size=10))
    queue.put(_messages(4, size=1))
    assert (queue.count, queue.size_bytes) == (3, 21)
    queue.remove(_messages(3, 4))
    queue.put(_messages(3))  # the broker's log was cut back
    assert queue.remove(_messages(5)) == 3
    assert queue.remove(_messages(3)) == 6


def test_taken_in_order_until_nothing_waits() -> None:
    queue = _process_queue()
    assert queue.put(_messages(1, 2, 3))
    assert not queue.put(_messages(4)), "another call takes already"
    assert [each.queue_offset for each in queue.take(3)] == [1, 2, 3]
    assert queue.count == 4
    queue.give_back()
    assert [each.queue_offset for each in queue.take(2)] == [1, 2]
    assert queue.commit() == 3
    assert queue.commit() == NO_OFFSET
    assert [each.queue_offset for each in queue.take(9)] == [3, 4]
    assert queue.commit() == 5
    assert queue.take(1) == []
    assert queue.put(_messages(5)), "no call takes any more"


def test_cleared_while_the_listener_has_messages() -> None:
    queue = _process_queue()
    queue.put(_messages(1, 2))
    queue.take(1)
    queue.clear()
    assert queue.commit() == NO_OFFSET
    assert (queue.count, queue.size_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("limits", "offsets", "word"),
    [
        ({"messages": 2}, (1, 2, 3), "3 messages wait, more than 2"),
        ({"size_bytes": 20}, (1, 2, 3), "30 bytes wait, more than 20"),
        ({"span": 10}, (1, 5, 12), "a span of 11 wait, more than 10"),
    ],
)
def test_full(limits: dict[str, int], offsets: tuple[int, ...], word: str) -> None:
    queue = _process_queue(**limits)
    messages = _messages(*offsets, size=10)
    queue.put(messages[:-1])
    assert queue.fullness() is None
    assert not queue.when_room(lambda: None)
    queue.put(messages[-1:])
    assert word in (queue.fullness() or "")
    woken: list[int] = []
    assert queue.when_room(lambda: woken.append(1))
    queue.remove(messages[:1])
    queue.remove(messages[1:])
    assert woken == [1], "once, and as soon as there is room"


def test_one_slow_message_does_not_keep_the_others_waiting() -> None:
    queue = _process_queue(span=10)
    slow, *others = _messages(0, 9, 10)
    queue.put([slow, *others])
    queue.remove(others)
    assert (queue.span, queue.fullness()) == (0, None)
    queue.put(_messages(11))
    assert queue.fullness() is not None
    assert queue.remove(_messages(11)) == 0
    assert queue.fullness() is None


def test_any_span_in_order() -> None:
    queue = _process_queue(span=None)
    queue.put(_messages(0, 5000))
    assert queue.fullness() is None


def test_a_lock_that_is_not_renewed_expires() -> None:
    clock = _Clock()
    queue = _process_queue(clock)
    queue.set_locked(True)
    clock.ms += 30_000
    assert not queue.is_lock_expired
    clock.ms += 1
    assert queue.is_lock_expired
    queue.set_locked(False)
    assert queue.is_lock_expired
    queue.set_locked(True)
    assert not queue.is_lock_expired


def test_what_tools_show() -> None:
    queue = _process_queue()
    queue.put(_messages(7, 8, 9, size=3 << 20))
    queue.take(1)
    shown = queue.describe()
    assert (shown["cachedMsgMinOffset"], shown["cachedMsgMaxOffset"]) == (8, 9)
    assert (shown["cachedMsgCount"], shown["cachedMsgSizeInMiB"]) == (2, 9)
    assert (shown["transactionMsgMinOffset"], shown["transactionMsgCount"]) == (7, 1)
    assert shown["lastPullTimestamp"] == 1_000_000


class AgainstASet(RuleBasedStateMachine):
    """The queue against a set of the messages that are not done."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = _process_queue()
        self.waiting: set[int] = set()
        self.next = 0

    @rule(gaps=st.lists(st.integers(1, 4), min_size=1, max_size=8))
    def pull(self, gaps: list[int]) -> None:
        offsets = []
        for gap in gaps:
            self.next += gap
            offsets.append(self.next)
        self.queue.put(_messages(*offsets))
        self.waiting.update(offsets)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def consume(self, data: st.DataObject) -> None:
        offsets = data.draw(st.lists(st.sampled_from(sorted(self.waiting)), min_size=1, max_size=9))
        offset = self.queue.remove(_messages(*offsets))
        self.waiting.difference_update(offsets)
        assert offset == (min(self.waiting) if self.waiting else self.next + 1)

    @invariant()
    def counts(self) -> None:
        assert self.queue.count == self.queue.size_bytes == len(self.waiting)
        span = max(self.waiting) - min(self.waiting) if self.waiting else 0
        assert self.queue.span == span


TestAgainstASet = AgainstASet.TestCase


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
    assert "cannot save offsets" in caplog.text
