# SPDX-License-Identifier: Apache-2.0
"""Count the open half messages of each topic: ``config/transactionMetrics``.

Source: RocketMQ ``TransactionMetrics`` (release 5.3.3; 4.x has no such file).
"""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store_core.config.lenient_json import (
    decode_lenient_json,
    json_field,
    json_number_or_default,
    json_object,
)
from store_core.files.byte_source import read_file
from store_core.files.file_writing import make_directory, write_error
from store_core.layout import CONFIG_DIR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.config.config_writing import Replace

logger = logging.getLogger(__name__)

TRANSACTION_METRICS = "transactionMetrics"


@dataclass
class _Metric:
    count: int = 0
    timestamp_ms: int = 0


class TransactionMetrics:
    """Counts by topic, and their file; safe for any thread."""

    def __init__(self, root: str) -> None:
        self._path = Path(root, CONFIG_DIR, TRANSACTION_METRICS)
        self._lock = threading.Lock()
        self._metrics: dict[str, _Metric] = {}
        self._counter = self._state_version = self._timestamp_ms = 0
        self._is_changed = False

    def load(self) -> None:
        """Read the file, or its ``.bak``; a file that cannot be read is ignored, as in a broker."""
        for path in (self._path, self._path.with_name(self._path.name + ".bak")):
            try:
                self._take(decode_lenient_json(read_file(str(path))))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as err:
                logger.warning("%s is ignored: %s", path, err)
                continue
            return

    def add(self, changes: Mapping[str, int], now_ms: int) -> None:
        """Add to the counts of topics; the file's version counts each message as a change."""
        with self._lock:
            for topic, change in changes.items():
                metric = self._metrics.setdefault(topic, _Metric())
                metric.count += change
                metric.timestamp_ms = self._timestamp_ms = now_ms
                self._counter += abs(change)
                self._is_changed = True

    def counts(self) -> dict[str, int]:
        """Return the number of open half messages by topic."""
        with self._lock:
            return {topic: metric.count for topic, metric in self._metrics.items()}

    def persist(self, replace: Replace) -> bool:
        """Write the file if a count has changed; return whether it was written.

        Raises
        ------
        StoreWriteError
            The file cannot be written.
        """
        with self._lock:
            if not self._is_changed:
                return False
            text, self._is_changed = self._text(), False
        try:
            make_directory(str(self._path.parent))
            replace(str(self._path), text.encode())
        except OSError as err:
            self._is_changed = True
            raise write_error(err, str(self._path)) from err
        return True

    def _text(self) -> str:
        version = {
            "counter": self._counter,
            "stateVersion": self._state_version,
            "timestamp": self._timestamp_ms,
        }
        counts = {
            topic: {"count": metric.count, "timeStamp": metric.timestamp_ms}
            for topic, metric in self._metrics.items()
        }
        content = {"dataVersion": version, "transactionCount": counts}
        return json.dumps(content, separators=(",", ":"))

    def _take(self, data: Any) -> None:
        content = json_object(data, TRANSACTION_METRICS)
        version = json_object(content.get("dataVersion"), "dataVersion")
        table = json_object(content.get("transactionCount"), "transactionCount")
        metrics = {}
        for topic, item in table.items():
            values = json_object(item, f"transactionCount.{topic}")
            metrics[str(topic)] = _Metric(_whole(values, "count"), _whole(values, "timeStamp"))
        self._counter = _whole(version, "counter")
        self._state_version = _whole(version, "stateVersion")
        self._timestamp_ms = _whole(version, "timestamp")
        self._metrics = metrics


def _whole(values: dict[Any, Any], name: str) -> int:
    return json_number_or_default(json_field(values, name), name, 0)
