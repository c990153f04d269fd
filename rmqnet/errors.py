"""What may go wrong between this process and a cluster."""

from __future__ import annotations

from typing import NamedTuple


class RemotingError(Exception):
    """The other side cannot be reached, does not answer in time, or does not speak the protocol."""

    address = ""
    """The server, ``host:port``; empty where it is not known, or where there are several."""


class RemotingConnectError(RemotingError):
    """No connection to an address, or it was closed before the answer came."""


class RemotingTimeoutError(RemotingError):
    """No answer in time; whether the request was carried out is not known."""


class RemotingTooMuchRequestError(RemotingError):
    """Too many requests wait for answers; this one was not sent."""


class RemotingFormatError(RemotingError, ValueError):
    """Bytes that are not a frame of the protocol; the message names the peer and the place."""


class ClientError(Exception):
    """The client cannot do what was asked for: no route, a message too large, wrong use."""


class TopicNotFoundError(ClientError):
    """No name server knows the topic."""


class BrokerError(Exception):
    """A broker or name server answered that it will not, or cannot.

    Parameters
    ----------
    code
        Its response code.
    remark
        Its own words, maybe empty.
    address
        Who answered, ``host:port``.
    request
        What was asked for: the name of the request code.
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

        It answers so with the code of any failure (``SYSTEM_ERROR``); only the remark tells.
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
    """A message was sent to no broker that took it, as far as the client knows.

    Where a broker was reached and did not answer, it may have stored the message nevertheless.

    Parameters
    ----------
    topic
        Of the message.
    attempts
        The brokers tried, and why each failed.
    cost_ms
        How long it all took.
    response_code
        What the last broker answered; None where it did not.
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
    """The time for sending a message is over; it may have been stored nevertheless."""
