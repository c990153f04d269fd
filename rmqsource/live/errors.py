# SPDX-License-Identifier: Apache-2.0
"""Errors of live reads and writes, by what the user can do next."""

from __future__ import annotations

from rmqsource.errors import DataLossError, SourceError


class ClusterError(SourceError):
    """The cluster cannot be reached, or refuses a request."""

    def __init__(self, cluster: str, reason: str) -> None:
        super().__init__(cluster, reason)
        self.cluster, self.reason = cluster, reason

    def __str__(self) -> str:
        return f"cluster {self.cluster}: {self.reason}"


class LiveDataLossError(DataLossError):
    """Selected messages of a queue are gone, and ``failOnDataLoss`` is true."""

    def __str__(self) -> str:
        return (
            f"{self.store}: {self.reason}. To continue with what is left, set option "
            "'failOnDataLoss' to false"
        )


class KeyLookupError(SourceError):
    """A broker's index cannot return all messages with a key."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(store, reason)
        self.store, self.reason = store, reason

    def __str__(self) -> str:
        return (
            f"{self.store}: {self.reason}. Set option 'access' to 'consumequeue': it pulls "
            "all messages of the topic's queues and filters them here"
        )
