# SPDX-License-Identifier: Apache-2.0
"""The bundled store and a tour of it: ``python -m rmqsource.demo``."""

from __future__ import annotations

from rmqsource.demo.data import DemoStore, unpack_store

__all__ = ["DemoStore", "unpack_store"]
