# SPDX-License-Identifier: Apache-2.0
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
    """Content of one frame.

    Attributes
    ----------
    remark
        Text of the answering side; None if there is none.
    flag
        Bit 0 marks an answer, bit 1 a one-way request.
    language, version
        Of the program that sent it; version 479 is release 5.3.3.
    frame_bytes
        Length of the frame that it was decoded from; 0 if it was not.
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
        """Whether it answers a request."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Whether it is a request that gets no answer."""
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
        """Return the answer that this request succeeded, with optional fields and body."""
        return self.response_to(self, ResponseCode.SUCCESS, None, header, body)

    def refusal(self, code: int, remark: str) -> RemotingCommand:
        """Return the answer that refuses this request, with the reason as its remark."""
        return self.response_to(self, code, remark)

    def __repr__(self) -> str:
        # Only the names of fields: values include keys, tokens and signatures.
        name = response_name(self.code) if self.is_response else request_name(self.code)
        kind = "answer" if self.is_response else "one-way" if self.is_oneway else "request"
        return (
            f"<{kind} {name} opaque={self.opaque} fields={sorted(self.ext_fields)} "
            f"body={len(self.body)} bytes remark={self.remark!r:.200}>"
        )
