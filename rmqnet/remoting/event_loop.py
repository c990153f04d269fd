# SPDX-License-Identifier: Apache-2.0
"""The event loop of clients and servers: asyncio's own, or uvloop's on request."""

from __future__ import annotations

import asyncio
import os

from rmqnet.errors import ClientError

_SWITCH = "ROCKETMQ_STORE_UVLOOP"


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop; uvloop's if ``ROCKETMQ_STORE_UVLOOP=1``.

    Raises
    ------
    ClientError
        uvloop is requested, but not installed.
    """
    if os.environ.get(_SWITCH) != "1":
        return asyncio.new_event_loop()
    try:
        import uvloop  # noqa: PLC0415 (optional)
    except ImportError as err:
        raise ClientError(
            f"{_SWITCH}=1, but uvloop is not installed: install the extra uvloop"
        ) from err
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
