"""A request or an answer, as both sides see it.

Source: RocketMQ ``RemotingCommand`` (release 5.3.3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqnet.remoting.codes import (
    V5_3_3,
    LanguageCode,
    ResponseCode,
    SerializeType,
    request_name,
    response_name,
)
from rmqnet.remoting.header_fields import RequestHeader, encode_header

if TYPE_CHECKING:
    from rmqnet.remoting.header_fields import Header

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2


@dataclass(repr=False)
class RemotingCommand:
    """One frame's content.

    Attributes
    ----------
    remark
        Words of whoever answers; None: none.
    flag
        Bit 0: an answer; bit 1: nobody waits for an answer.
    language, version
        Of the program that sent it; 479 is release 5.3.3.
    frame_bytes
        Length of the frame that it came in; 0 if it did not.
    """

    code: int
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str | None = None
    opaque: int = 0
    flag: int = 0
    language: LanguageCode = LanguageCode.PYTHON
    version: int = V5_3_3
    serialize_type: SerializeType = SerializeType.JSON
    frame_bytes: int = field(default=0, compare=False)

    @property
    def is_response(self) -> bool:
        """It answers a request."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Nobody waits for an answer."""
        return self.flag & ONEWAY_FLAG != 0

    @staticmethod
    def request(
        header: RequestHeader | int, body: bytes = b"", code: int | None = None
    ) -> RemotingCommand:
        """Return a request."""
        if isinstance(header, RequestHeader):
            return RemotingCommand(
                header.REQUEST_CODE if code is None else code, encode_header(header), body
            )
        return RemotingCommand(header, {}, body)

    @staticmethod
    def response_to(
        request: RemotingCommand,
        code: int,
        remark: str | None = None,
        header: Header | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """Return the answer to a request, in the form of the request."""
        return RemotingCommand(
            code,
            {} if header is None else encode_header(header),
            body,
            remark,
            request.opaque,
            RESPONSE_FLAG,
            serialize_type=request.serialize_type,
        )

    def success(self, header: Header | None = None, body: bytes = b"") -> RemotingCommand:
        """Return the answer of success to this request; without both it says nothing else."""
        return self.response_to(self, ResponseCode.SUCCESS, None, header, body)

    def refusal(self, code: int, remark: str) -> RemotingCommand:
        """Return the answer to this request that something cannot be done, and why."""
        return self.response_to(self, code, remark)

    def __repr__(self) -> str:
        # Names of fields only: among the values are keys, tokens and signatures.
        name = response_name(self.code) if self.is_response else request_name(self.code)
        kind = "answer" if self.is_response else "one-way" if self.is_oneway else "request"
        return (
            f"<{kind} {name} opaque={self.opaque} fields={sorted(self.ext_fields)} "
            f"body={len(self.body)} bytes remark={self.remark!r:.200}>"
        )
