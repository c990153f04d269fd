# SPDX-License-Identifier: Apache-2.0
"""The version of a broker's topics, groups or offsets, which counts their changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from store_core.config.lenient_json import json_field, json_number_or_default, json_object


@dataclass(frozen=True, order=True)
class DataVersion:
    """The version of a broker's settings (RocketMQ ``DataVersion``, release 5.3.3).

    Versions compare as RocketMQ compares them: state version, then counter, then timestamp.
    """

    state_version: int = 0
    """Of the controller's state machine; 0 without one, absent in files of 4.x."""
    counter: int = 0
    timestamp: int = 0
    """Time of the last change, ms since the epoch."""

    def next(self, now_ms: int) -> DataVersion:
        """Return the version after one more change."""
        return DataVersion(self.state_version, self.counter + 1, now_ms)

    def to_json(self) -> dict[str, int]:
        """Return the version as brokers write it."""
        return {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp,
        }


def parse_data_version(value: Any) -> DataVersion:
    """Return the version in a field ``dataVersion``; ValueError if it is not one."""
    fields = json_object(value, "dataVersion")
    return DataVersion(
        *(
            json_number_or_default(json_field(fields, name), f"dataVersion.{name}", 0)
            for name in ("stateVersion", "counter", "timestamp")
        )
    )
