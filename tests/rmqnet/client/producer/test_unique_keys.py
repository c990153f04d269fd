from __future__ import annotations

import os
import struct
import threading
import time

import pytest

from rmqnet.client.producer import unique_keys
from rmqnet.client.producer.unique_keys import UniqueKeys
from store_core.codec.message_id import month_start_ms

ADDRESS = b"\x0a\x00\x00\x07"


def test_an_id_says_who_and_when():
    before_ms = time.time_ns() // 1_000_000
    raw = bytes.fromhex(UniqueKeys(ADDRESS).next_key())
    after_ms = time.time_ns() // 1_000_000
    address, process, _, since_ms, count = struct.unpack(">4sHiIH", raw)
    assert (address, process, count) == (ADDRESS, os.getpid() & 0xFFFF, 0)
    assert before_ms <= month_start_ms(before_ms) + since_ms <= after_ms


def test_ids_are_upper_case_hex_also_of_long_addresses():
    key = UniqueKeys(bytes(range(0xF0, 0x100))).next_key()
    assert len(key) == 56
    assert key == key.upper()
    assert len(UniqueKeys(ADDRESS).next_key()) == 32


def test_ids_differ_in_all_threads():
    keys, given = UniqueKeys(ADDRESS), []
    threads = [
        threading.Thread(target=lambda: given.extend([keys.next_key() for _ in range(5000)]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(given)) == 20_000


def test_two_processes_of_one_number_differ():
    one, other = UniqueKeys(ADDRESS).next_key(), UniqueKeys(ADDRESS).next_key()
    assert one[8:12] == other[8:12]
    assert one[12:20] != other[12:20]


def test_a_new_month_begins_at_zero(monkeypatch):
    keys = UniqueKeys(ADDRESS)
    start = month_start_ms(time.time_ns() // 1_000_000)
    later_ms = month_start_ms(start + 40 * 86_400_000) + 1234
    monkeypatch.setattr(unique_keys.time, "time_ns", lambda: later_ms * 1_000_000)
    assert int(keys.next_key()[20:28], 16) == 1234


def test_the_counter_starts_anew_after_two_bytes():
    keys = UniqueKeys(ADDRESS)
    counts = [int(keys.next_key()[28:], 16) for _ in range(65_537)]
    assert counts[-2:] == [65_535, 0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_ids_of_its_own():
    keys = UniqueKeys(ADDRESS)
    keys.next_key()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, keys.next_key().encode())
        os._exit(0)
    os.waitpid(child, 0)
    given = os.read(read_end, 100).decode()
    os.close(read_end)
    os.close(write_end)
    assert given[:20] != keys.next_key()[:20]


def test_threads_of_a_forked_child_have_none_of_its_parents(monkeypatch):
    keys = UniqueKeys(ADDRESS)
    parents = keys.next_key()[:20]
    given = []

    class AskedMeanwhile(unique_keys.random.SystemRandom):
        def randrange(self, *bounds):
            if not given:  # as another thread does in the middle of the first one's beginning
                given.append("")
                given.append(keys.next_key())
            return super().randrange(*bounds)

    monkeypatch.setattr(unique_keys.random, "SystemRandom", AskedMeanwhile)
    child = os.getpid() + 1
    monkeypatch.setattr(unique_keys.os, "getpid", lambda: child)
    given.append(keys.next_key())
    assert len(given) == 3
    assert parents not in {key[:20] for key in given}
