# SPDX-License-Identifier: Apache-2.0
"""Conditions that a store must meet after its writer died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from store_core import MessageStore, MessageStoreConfig, StoreSnapshot
from store_core.tools.check import Finding, FindingKind, Severity, check_store
from tests.store_core.crash.by_hand import dispatch_all, without_threads
from tests.store_core.crash.messages import numbers_in, place_of


def judge(
    root: Path,
    config: MessageStoreConfig,
    acknowledged: Collection[int],
    put: Collection[int],
    torn: Collection[int] = (),
) -> list[int]:
    """Open the store again, check all of it, and return the numbers of its messages.

    Every acknowledged message is there once and in order; none of the others is invented; queues,
    index and log agree. Messages in ``torn`` may be missing in queries by key, and their tags may
    differ from their units: no CRC covers the properties of a record that was not yet flushed (or
    the CRC is torn off with them).
    """
    with without_threads(), MessageStore(config) as store:
        dispatch_all(store)
        found = numbers_in(store)
        everything = [number for numbers in found.values() for number in numbers]
        repeated = [number for number, times in Counter(everything).items() if times > 1]
        assert not repeated, f"twice: {repeated}"
        missing = sorted(set(acknowledged) - set(everything))
        assert not missing, f"acknowledged and lost: {missing}"
        invented = sorted(set(everything) - set(put))
        assert not invented, f"never put: {invented}"
        for numbers in found.values():
            assert numbers == sorted(numbers)
        assert store.dispatch_behind_bytes == 0
        _check_keys(store, [number for number in everything if number not in torn])
    assert not (root / "abort").exists()
    assert_sound(root, config, torn)
    return sorted(everything)


def assert_sound(root: Path, config: MessageStoreConfig, torn: Collection[int] = ()) -> None:
    """Let ``rocketmq-store check`` read the store: it must find nothing to repair.

    A unit of a ``torn`` message, whose properties no CRC covers, may have reached the disk whole.
    """
    with StoreSnapshot(root, config) as snapshot:
        wrong = [
            finding
            for finding in check_store(snapshot).findings
            if finding.severity != Severity.INFORMATION
            and not (_is_of_torn(snapshot, finding, torn) and not config.enabled_append_prop_crc)
        ]
    assert not wrong, wrong


def _is_of_torn(snapshot: StoreSnapshot, finding: Finding, torn: Collection[int]) -> bool:
    """Return whether a finding is only that units or entries match torn messages as put."""
    if finding.kind == FindingKind.UNIT_TAGS:
        topic, _, queue_id = finding.place.rpartition("/")
        got = snapshot.get_message("judge", topic, int(queue_id), finding.position, finding.count)
        bodies, most = [message.body for message in got.messages[:1]], len(torn)
    elif finding.kind == FindingKind.INDEX_ENTRY:
        places = {int(example.rpartition(" ")[2]) for example in finding.examples}
        bodies = [snapshot.reader.read(place).body for place in sorted(places)]
        most = 2 * len(torn)  # each has two keys
    else:
        return False
    numbers = {int(body.split(b":")[0]) for body in bodies}
    return numbers != set() and numbers <= set(torn) and finding.count <= most


def _check_keys(store: MessageStore, numbers: list[int]) -> None:
    for number in numbers[:: max(len(numbers) // 8, 1)]:
        topic, _ = place_of(number)
        result = store.query_message(topic, f"k{number}", 32, 0, 2**63 - 1)
        bodies = [message.body.split(b":")[0] for message in result.messages]
        assert bodies.count(b"%d" % number) == 1, (number, bodies)
