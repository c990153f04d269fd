# SPDX-License-Identifier: Apache-2.0
"""Plots of the frames of `rmqsource.explore` and of lag, titled with the main result.

Each function draws into the given axes, or into those of a new figure, and returns them
(``axes.figure.savefig(...)`` saves the picture; in a notebook, ``axes.figure`` shows it). Needs
the extra ``notebook``.
"""

from __future__ import annotations

from rmqsource.plots.flow import consumer_lag, life, lookup_and_scan
from rmqsource.plots.over_time import stream_lag, traffic
from rmqsource.plots.ranking import bytes_by_topic, tags, top_keys
from rmqsource.plots.shape import latency, message_sizes, queue_skew

__all__ = [
    "bytes_by_topic",
    "consumer_lag",
    "latency",
    "life",
    "lookup_and_scan",
    "message_sizes",
    "queue_skew",
    "stream_lag",
    "tags",
    "top_keys",
    "traffic",
]
