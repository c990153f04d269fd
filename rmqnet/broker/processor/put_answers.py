"""How a broker answers for what the store made of a put.

Source: RocketMQ ``SendMessageProcessor.handlePutMessageResult`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqnet.remoting.codes import ResponseCode
from store_core.results import PutMessageStatus

if TYPE_CHECKING:
    from store_core.results import PutMessageResult

STORED_CODES = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""The message is stored, as safely as the code says."""

_REFUSED_CODES = {
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}


def refusal_of(result: PutMessageResult) -> tuple[ResponseCode, str]:
    """Return code and remark for a message that was not stored."""
    code = _REFUSED_CODES.get(result.status, ResponseCode.SYSTEM_ERROR)
    return code, result.reason or result.status.value
