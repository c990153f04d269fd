# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests and answers that are JSON."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rmqnet.client.queue_json import to_queue_json
from rmqnet.errors import RemotingFormatError
from rmqnet.remoting.codes import request_name
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.config.lenient_json import json_object, parse_lenient_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqnet.remoting.header_fields import Header


@contextmanager
def body_of(request: RemotingCommand) -> Iterator[dict[str, Any]]:
    """Give a block the JSON object in a request's body.

    Raises
    ------
    RemotingFormatError
        The body is not a JSON object, or the block raised ValueError for its content.
    """
    try:
        yield json_object(parse_lenient_json(request.body.decode()), "body")
    except ValueError as err:
        name = request_name(request.code)
        raise RemotingFormatError(f"the body of {name} cannot be decoded: {err}") from err


def json_answer(
    request: RemotingCommand, value: Any, header: Header | None = None
) -> RemotingCommand:
    """Return a successful answer with a JSON body; keys may be queues or whole numbers."""
    return request.success(header, to_queue_json(value).encode())
