# SPDX-License-Identifier: Apache-2.0
"""What runs a test with the native kernel and without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, TypeVar

import pytest

from store_core import native

T = TypeVar("T")
KERNEL = native.kernel
PATHS = (None, KERNEL)
needs_kernel = pytest.mark.skipif(KERNEL is None, reason="no kernel was built or it is off")


@contextmanager
def running(kernel: Any) -> Iterator[None]:
    """Use a kernel, or None for NumPy, inside the block."""
    before, native.kernel = native.kernel, kernel
    try:
        yield
    finally:
        native.kernel = before


def by_both(function: Callable[[], T]) -> list[T]:
    """Return what a function returns by NumPy and by the kernel."""
    results = []
    for kernel in PATHS:
        with running(kernel):
            results.append(function())
    return results
