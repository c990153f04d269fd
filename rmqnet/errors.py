# SPDX-License-Identifier: Apache-2.0
"""Errors between this process and a cluster."""

from __future__ import annotations

from typing import NamedTuple


class RemotingError(Exception):
    """The other side cannot be reached, does not answer in time, or does not speak the protocol."""

    address = ""
    """The server, ``host:port``; empty if unknown, or if there are several."""


class RemotingConnectError(RemotingError):
    """No connection to an address, or it ended before the answer arrived."""


class RemotingTimeoutError(RemotingError):
    """No answer in time; whether the request was carried out is not known."""


class RemotingTooMuchRequestError(RemotingError):
    """Too many requests wait for answers; this one was not sent."""


class RemotingFormatError(RemotingError, ValueError):
    """Bytes that are not a frame of the protocol; the message names the peer and the place."""


class ClientError(Exception):
    """The client cannot carry out a call: no route, a message too large, wrong use."""


class TopicNotFoundError(ClientError):
    """No name server knows the topic."""


class BrokerError(Exception):
    """A broker or name server refused a request, or failed to carry it out.

    Parameters
    ----------
    code
        Its response code.
    remark
        Its explanation; may be empty.
    address
        The server that answered, ``host:port``.
    request
        Name of the request code.
    """

    def __init__(self, code: int, remark: str, address: str, request: str) -> None:
        super().__init__(code, remark, address, request)
        self.code = code
        self.remark = remark
        self.address = address
        self.request = request

    @property
    def is_access_refused(self) -> bool:
        """Whether a broker of RocketMQ 4.x refuses the account or its signature: no retry helps.

        It answers with the code of any failure (``SYSTEM_ERROR``); only the remark differs.
        """
        return "AclException" in self.remark

    def __str__(self) -> str:
        return f"{self.address} answered {self.request} with code {self.code}: {self.remark}"


class SendAttempt(NamedTuple):
    """One try to send a message: where, and why it failed."""

    broker_name: str
    address: str
    reason: str

    def __str__(self) -> str:
        where = f"{self.broker_name} ({self.address})" if self.address else self.broker_name
        return f"{where}: {self.reason}"


class SendFailedError(ClientError):
    """No broker confirmed a message that was sent.

    A broker that was reached but did not answer may have stored the message nevertheless.

    Parameters
    ----------
    topic
        Topic of the message.
    attempts
        The brokers tried, and why each failed.
    cost_ms
        Total time in ms.
    response_code
        Code of the last broker's answer; None if it did not answer.
    """

    def __init__(
        self,
        topic: str,
        attempts: tuple[SendAttempt, ...],
        cost_ms: int,
        response_code: int | None = None,
    ) -> None:
        super().__init__(topic, attempts, cost_ms, response_code)
        self.topic = topic
        self.attempts = attempts
        self.cost_ms = cost_ms
        self.response_code = response_code
        self.address = attempts[-1].address if attempts else ""

    def __str__(self) -> str:
        tries = "; ".join(f"{number}. {each}" for number, each in enumerate(self.attempts, 1))
        return (
            f"a message to topic {self.topic} was not sent, in {len(self.attempts)} tries and "
            f"{self.cost_ms} ms: {tries or self.__cause__ or 'no broker was asked'}"
        )


class SendTimeoutError(SendFailedError, RemotingTimeoutError):
    """Sending a message timed out; it may have been stored nevertheless."""
