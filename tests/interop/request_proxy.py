"""An HTTP proxy before an S3 server: it counts requests and bytes, and is busy or cut on demand."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_BUSY = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>SlowDown</Code>"
    b"<Message>Please reduce your request rate.</Message></Error>"
)
_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "keep-alive"})


class ProxiedRequest(NamedTuple):
    """A request and its answer: ``list``, ``head`` or ``get``; when it was under way (seconds)."""

    kind: str
    path: str
    status: int
    body_bytes: int
    begun: float
    ended: float


class RequestProxy:
    """Forwards to a server, one thread a connection.

    Parameters
    ----------
    target
        ``HOST:PORT``.
    delay_seconds
        Of each request.

    Attributes
    ----------
    requests
        All that were answered.
    trouble
        Called with kind and path before each: ``busy``, ``cut`` (in the middle of the answer),
        ``reset`` (before it), or nothing.
    """

    def __init__(self, target: str, delay_seconds: float = 0.0) -> None:
        self.target, self.delay_seconds = target, delay_seconds
        self.requests: list[ProxiedRequest] = []
        self.trouble: Callable[[str, str], str] = lambda _kind, _path: ""
        self._server = _ProxyServer(self)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> RequestProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _ProxyServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: RequestProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy

    def handle_error(self, *_: Any) -> None:
        """Keep quiet: a client that was cut goes away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        kind = "list" if "list-type" in urlsplit(self.path).query else "get"
        self._forward(kind)

    def do_HEAD(self) -> None:
        self._forward("head")

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""

    def _forward(self, kind: str) -> None:
        assert isinstance(self.server, _ProxyServer)
        proxy, path, begun = self.server.proxy, urlsplit(self.path).path, time.monotonic()
        time.sleep(proxy.delay_seconds)
        trouble = proxy.trouble(kind, path)
        if trouble == "reset":
            self.close_connection = True
            return
        if trouble == "busy":
            status, headers, body = 503, [("Content-Type", "application/xml")], _BUSY
        else:
            status, headers, body = self._ask(proxy.target)
        self._answer(status, headers, body, is_cut=trouble == "cut")
        noted = ProxiedRequest(kind, path, status, len(body), begun, time.monotonic())
        proxy.requests.append(noted)

    def _ask(self, target: str) -> tuple[int, list[tuple[str, str]], bytes]:
        host, _, port = target.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _answer(
        self, status: int, headers: list[tuple[str, str]], body: bytes, *, is_cut: bool
    ) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value if self.command == "HEAD" else length
            elif name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if is_cut else body)
        self.close_connection = self.close_connection or is_cut
