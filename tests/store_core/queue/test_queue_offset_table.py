from __future__ import annotations

import threading

from store_core.queue.consume_queue_store import QueueOffsetTable


def test_counters_of_both_kinds_are_replaced_together():
    table = QueueOffsetTable()
    table.simple["old", 0] = 5
    table.batch["old", 0] = 6
    table.set_all({("a", 1): 7, ("%LMQ%x", 0): 3}, {("b", 0): 8})
    assert table.counters(is_batch=False) == {("a", 1): 7, ("%LMQ%x", 0): 3}
    assert table.counters(is_batch=True) == {("b", 0): 8}
    assert (table.next_light("%LMQ%x"), table.next_light("%LMQ%y")) == (3, 0)
    table.advance_light(["%LMQ%x", "%LMQ%y"])
    assert (table.next_light("%LMQ%x"), table.next_light("%LMQ%y")) == (4, 1)


def test_a_topic_is_forgotten_with_all_its_queues():
    table = QueueOffsetTable()
    table.set_all({("a", 0): 1, ("a", 1): 2, ("b", 0): 3}, {("a", 0): 4})
    table.remove("a")
    assert (table.simple, table.batch) == ({("b", 0): 3}, {})


def test_locks_are_held_together_and_given_back():
    table = QueueOffsetTable(lock_num=3)
    queues = [("t", number) for number in range(20)]
    with table.locks(queues, light=True):
        assert all(table.lock(queue).locked() for queue in queues)
        assert table.light_lock.locked()
    assert not any(table.lock(queue).locked() for queue in queues)
    assert not table.light_lock.locked()


def test_overlapping_sets_of_locks_do_not_block_each_other_for_ever():
    table = QueueOffsetTable(lock_num=5)
    queues = [("t", number) for number in range(12)]
    counts = [0]

    def work(own):
        for _ in range(200):
            with table.locks(own):
                counts[0] += len(own)

    orders = [queues, queues[::-1], queues[3:8], queues[8:2:-1]]
    threads = [threading.Thread(target=work, args=(own,), daemon=True) for own in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
