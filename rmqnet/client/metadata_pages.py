"""Tables of topics and groups, which brokers of 5.5 hand out page by page.

Source: RocketMQ ``MQClientAPIImpl.getAllTopicConfig``, ``getAllSubscriptionGroup`` (release 5.5.0).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from rmqnet.client.request_calls import json_of
from rmqnet.errors import RemotingFormatError
from rmqnet.remoting.codes import RequestCode
from rmqnet.remoting.header_fields import RequestHeader
from rmqnet.remoting.headers import (
    GetAllSubscriptionGroupRequestHeader,
    GetAllTopicConfigRequestHeader,
)
from store_core.config.lenient_json import json_object

if TYPE_CHECKING:
    from rmqnet.client.request_calls import RequestCalls

_PAGE = 2000
_MOST_BEGINNINGS = 10


class _Kind(NamedTuple):
    """What one kind of table is asked for with, and where its rows and their number are."""

    header: Callable[[int, str], RequestHeader]
    rows: str
    total: str
    beside: str


_KINDS = {
    RequestCode.GET_ALL_TOPIC_CONFIG: _Kind(
        lambda begin, version: GetAllTopicConfigRequestHeader(
            topic_seq=begin, data_version=version, max_topic_num=_PAGE
        ),
        "topicConfigTable",
        "totalTopicNum",
        "topicQueueMappingDetailMap",
    ),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _Kind(
        lambda begin, version: GetAllSubscriptionGroupRequestHeader(
            group_seq=begin, data_version=version, max_group_num=_PAGE
        ),
        "subscriptionGroupTable",
        "totalGroupNum",
        "forbiddenTable",
    ),
}
PAGED_CODES = frozenset(_KINDS)


async def paged_table(
    calls: RequestCalls, address: str, code: RequestCode, timeout_s: float | None = None
) -> dict[str, Any]:
    """Return the whole table, as a broker that knows no pages answers it.

    It begins again where the table changes between two pages.

    Raises
    ------
    BrokerError, RemotingError
        As of ``RequestCalls.answer``; also where the table changes all the time.
    """
    kind = _KINDS[code]
    for _ in range(_MOST_BEGINNINGS):
        whole = await _read(calls, address, kind, timeout_s)
        if whole is not None:
            return whole
    raise RemotingFormatError(
        f"{address} answers {code.name} with another version of the table each time"
    )


async def _read(
    calls: RequestCalls, address: str, kind: _Kind, timeout_s: float | None
) -> dict[str, Any] | None:
    """Return the table; None: it changed meanwhile."""
    whole: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    beside: dict[str, Any] = {}
    version = ""
    while True:
        answer = await calls.answer(address, kind.header(len(rows), version), timeout_s=timeout_s)
        page = json_of(answer, address, "table")
        whole = whole or page
        if page.get("dataVersion") != whole.get("dataVersion"):
            return None
        try:
            found = json_object(page.get(kind.rows) or {}, kind.rows)
            others = json_object(page.get(kind.beside) or {}, kind.beside)
        except ValueError as err:
            raise RemotingFormatError(f"{address} answered what is not understood: {err}") from err
        is_new = bool(found.keys() - rows.keys())
        rows.update(found)
        beside.update(others)
        total = answer.ext_fields.get(kind.total, "")
        if not total.isdecimal() or len(rows) >= int(total) or not is_new:
            tables = {kind.rows: rows, kind.beside: beside}
            return {**whole, **{name: table for name, table in tables.items() if table}}
        version = json.dumps(page.get("dataVersion") or {}, separators=(",", ":"))
