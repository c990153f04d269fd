"""Which failures are worth another try.

Source: RocketMQ ``DefaultMQProducer.retryResponseCodes``, ``DefaultMQProducerImpl`` (release
5.3.3), there for synchronous sends. Asynchronous ones are tried again for the same reasons here;
a Java client does so only where no answer came.
"""

from __future__ import annotations

from rmqnet.errors import RemotingConnectError, RemotingTimeoutError
from rmqnet.remoting.codes import ResponseCode

RETRY_RESPONSE_CODES = frozenset(
    int(code)
    for code in (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    )
)
"""Answers after which another broker may do better."""

RETRIED_ERRORS = (RemotingConnectError, RemotingTimeoutError)
"""No connection, or no answer. Not: too many requests wait, or the frame is too long."""
