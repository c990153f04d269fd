"""What may go wrong between this process and a cluster."""

from __future__ import annotations


class RemotingError(Exception):
    """The other side cannot be reached, does not answer in time, or does not speak the protocol."""


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

    def __str__(self) -> str:
        return f"{self.address} answered {self.request} with code {self.code}: {self.remark}"
