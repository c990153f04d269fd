# SPDX-License-Identifier: Apache-2.0
"""The listener that reports the lag of streams."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from rmqsource.safe_text import printable
from rmqsource.stream.stream_lag import store_lags

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Callable

    from rmqsource.stream.stream_lag import StoreLag

logger = logging.getLogger(__name__)


def print_lags(lags: Sequence[StoreLag]) -> None:
    """Print the lags of a batch in one line."""
    name = lags[0].query_name or lags[0].query_id
    stores = "; ".join(_lag_text(lag) for lag in lags)
    print(f"{printable(name)}, batch {lags[0].batch}: {stores}", flush=True)


def _lag_text(lag: StoreLag) -> str:
    parts = (
        (lag.messages_behind, "messages"),
        (lag.bytes_behind, "bytes"),
        (lag.ms_behind, "ms"),
    )
    known = [f"{count:,} {unit}" for count, unit in parts if count is not None]
    if known:
        return f"{', '.join(known)} behind {printable(lag.store)}"
    return f"lag not known, at offset {lag.end_offset} of {printable(lag.store)}"


class StreamLagListener(StreamingQueryListener):
    """Reports the lag of a session's queries in their stores after each batch.

    ``spark.streams.addListener(StreamLagListener())``. Lags refer to the stores as they were when
    the trigger began, so a batch without limits has lag 0.

    Parameters
    ----------
    report
        Called with the `StoreLag` of each store that a query reads, after each batch. By default
        it prints a line. Exceptions that it raises are logged and do not stop the query.
    """

    def __init__(self, report: Callable[[list[StoreLag]], Any] = print_lags) -> None:
        self._report = report

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:
        """Report the lags in a query's progress."""
        try:
            lags = store_lags(event.progress)
            if lags:
                self._report(lags)
        except Exception:
            logger.exception("the lag of a stream was not reported")

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Do nothing."""
