"""What must hold of the delayed messages of a store whose process, or power, has gone."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from store_core import MessageStore, MessageStoreConfig, ScheduleMessageService
from store_core.config.config_files import load_delay_offsets
from store_core.files.store_directory import StoreDirectory
from store_core.layout.message import SCHEDULE_TOPIC
from tests.store_core.crash.by_hand import dispatch_all, without_threads
from tests.store_core.schedule.delayed_store import queue_of
from tests.store_core.schedule.killed_delivery import DELAYS_MS, TOPICS, level_of, place_of


@dataclass
class Deliveries:
    """What lies in a store: who waited at which queue offset, how often each was delivered."""

    waited: dict[int, int] = field(default_factory=dict)
    delivered: Counter[int] = field(default_factory=Counter)
    saved: dict[int, int] = field(default_factory=dict)

    def may_come_again(self, number: int) -> bool:
        """Return whether the next process delivers it: it lies at or after the saved offset."""
        return number not in self.waited or self.waited[number] >= self.saved.get(
            level_of(number), 0
        )


def look(store: MessageStore) -> Deliveries:
    """Return what lies in an open store, whose times and order are checked."""
    found = Deliveries()
    root = store.config.store_path_root_dir
    found.saved = load_delay_offsets(StoreDirectory(root)) or {}
    put_at: dict[int, int] = {}
    for level, _ in enumerate(DELAYS_MS, 1):
        numbers = []
        for record in queue_of(store, SCHEDULE_TOPIC, level - 1):
            number = int(record.body.split(b":")[0])
            if b"\0" in record.properties_raw:
                continue  # no CRC covers them: torn, of a message that was never flushed
            assert level_of(number) == level
            found.waited[number] = record.queue_offset
            put_at[number] = record.store_timestamp
            numbers.append(number)
        assert numbers == sorted(set(numbers))
    for topic in TOPICS:
        for queue_id in range(2):
            firsts: dict[int, list[int]] = defaultdict(list)
            for record in queue_of(store, topic, queue_id):
                number = int(record.body.split(b":")[0])
                assert place_of(number) == (topic, queue_id)
                waited_ms = record.store_timestamp - put_at[number]
                assert waited_ms >= DELAYS_MS[level_of(number) - 1], "delivered early"
                if not found.delivered[number]:
                    firsts[level_of(number)].append(number)
                found.delivered[number] += 1
            assert all(numbers == sorted(numbers) for numbers in firsts.values())
    # What the file says is delivered is.
    lost = [n for n in found.waited if not found.may_come_again(n) and not found.delivered[n]]
    assert not lost, f"noted as delivered, and not there: {lost}"
    return found


def judge_repeats(before: Deliveries, after: Deliveries, runs: int) -> int:
    """Let only that be repeated which a broker would repeat; return how much was."""
    repeated = 0
    for number, times in after.delivered.items():
        had = before.delivered[number]
        most = had + runs if before.may_come_again(number) else had
        assert had <= times <= most, (number, had, times)
        repeated += times - max(had, 1) if times > 1 else 0
    return repeated


def deliver_all(config: MessageStoreConfig, now: int) -> Deliveries:
    """Deliver all that waits, at a time when all is due, in a run of its own."""
    with without_threads(), MessageStore(config, clock=lambda: now) as store:
        service = ScheduleMessageService(store)
        dispatch_all(store)
        while service.run_once():
            pass
        service.save()
        dispatch_all(store)
        found = look(store)
        assert all(found.delivered[number] >= 1 for number in found.waited)
        again = ScheduleMessageService(store)
        assert not again.run_once()
    return found
