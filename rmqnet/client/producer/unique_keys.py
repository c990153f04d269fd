# SPDX-License-Identifier: Apache-2.0
"""Client message ids (property ``UNIQ_KEY``), generated one at a time.

Source: RocketMQ ``MessageClientIDSetter.createUniqID`` (release 5.3.3);
``store_core.codec.message_id`` generates many in one call.
"""

from __future__ import annotations

import itertools
import os
import random
import struct
import time
from typing import TYPE_CHECKING

from store_core.codec.message_id import month_start_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROCESS = struct.Struct(">Hi")  # process id, random number in place of the class loader's hash
_MORE_THAN_A_MONTH_MS = 40 * 86_400_000
_COUNTER_MASK = 0xFFFF
_TIME_MASK = 0xFFFFFFFF


class UniqueKeys:
    """Generates distinct ids, in any thread and in forked children.

    Parameters
    ----------
    address
        4 or 16 bytes of this machine's address.
    """

    def __init__(self, address: bytes) -> None:
        self._address = address
        self._month_start_ms = self._month_ms = 0
        self._new_month()
        self._own = self._begin()

    def next_key(self) -> str:
        """Return an id of 32 hex digits (56 with an IPv6 address)."""
        process, prefix, counter = self._own
        if process != os.getpid():
            process, prefix, counter = self._own = self._begin()
        since_ms = time.time_ns() // 1_000_000 - self._month_start_ms
        if not 0 <= since_ms < self._month_ms:
            since_ms = self._new_month()
        count = next(counter) & _COUNTER_MASK
        return f"{prefix}{since_ms & _TIME_MASK:08X}{count:04X}"

    def _begin(self) -> tuple[int, str, Iterator[int]]:
        """Return this process's id parts as one tuple, so that threads see them change together."""
        process = os.getpid()
        random_hash = random.SystemRandom().randrange(-(1 << 31), 1 << 31)
        prefix = self._address + _PROCESS.pack(process & 0xFFFF, random_hash)
        return process, prefix.hex().upper(), itertools.count()

    def _new_month(self) -> int:
        now_ms = time.time_ns() // 1_000_000
        start_ms = month_start_ms(now_ms)
        self._month_ms = month_start_ms(start_ms + _MORE_THAN_A_MONTH_MS) - start_ms
        self._month_start_ms = start_ms
        return max(0, now_ms - self._month_start_ms)
