"""A store opened for reading only: the reading methods of ``MessageStore``, and exact queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.files.store_directory import StoreDirectory
from store_core.store_view import StoreView

if TYPE_CHECKING:
    from store_core.config import MessageStoreConfig


class StoreSnapshot(StoreView):
    """A store as it stood when it was opened; takes no lock, creates and changes nothing."""

    @classmethod
    def open(
        cls, path: str, config: MessageStoreConfig | None = None, end_offset: int | None = None
    ) -> StoreSnapshot:
        """Open a store root: a local path or a URI that ``pyarrow.fs`` opens."""
        return cls(StoreDirectory(path), config, end_offset)
