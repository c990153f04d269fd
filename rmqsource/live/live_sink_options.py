"""The options of one write to a cluster, parsed once, into one frozen dataclass."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from rmqsource.live.connection import Connection
from rmqsource.live.live_options import connection_of
from rmqsource.live.option_table import DEFAULT_PRODUCER_GROUP, LIVE_SINK_OPTION_TABLE
from rmqsource.options.option_table import given_options
from rmqsource.sink.option_table import SPARKS_OWN
from rmqsource.sink.options import SinkOptions, check_sink_options

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class LiveSinkOptions:
    """Options of one write, checked; plain values only, so that it can be pickled."""

    connection: Connection
    sink: SinkOptions
    """What the sink has in common with that of files; its path is no path."""
    group: str = DEFAULT_PRODUCER_GROUP
    send_batch_bytes: int = 512 << 10

    @property
    def topic(self) -> str | None:
        """Topic of rows without one."""
        return self.sink.topic


def parse_live_sink_options(options: Mapping[str, str]) -> LiveSinkOptions:
    """Check the options of a write and return their values.

    Parameters
    ----------
    options
        As Spark hands them over; names in any case.

    Raises
    ------
    SourceOptionError
        An option is unknown, malformed, out of bounds, or contradicts another one. It shows no
        secret.
    """
    given = given_options(options, LIVE_SINK_OPTION_TABLE, " to a write")
    values = {
        info.field: info.parse(name, text)
        for name, (info, text) in given.items()
        if name not in SPARKS_OWN
    }
    of_sink = {each.name for each in fields(SinkOptions)}
    own = {"group", "send_batch_bytes"}
    sink = SinkOptions("", **{name: v for name, v in values.items() if name in of_sink})
    check_sink_options(sink)
    return LiveSinkOptions(
        connection_of(values, given),
        sink,
        **{name: value for name, value in values.items() if name in own},
    )
