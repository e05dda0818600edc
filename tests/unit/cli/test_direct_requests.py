"""The command line sends requests, and with them its token, to the named gateway only: not to an
HTTP proxy of the environment, and not to the target of a redirect.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from proxy.cli.connect import ADMIN_TOKEN
from tests.support.command_line import CommandLine, command_line

TOKEN = "token-of-the-operator"
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture
def orderlane(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv(ADMIN_TOKEN, TOKEN)
    with command_line(monkeypatch, capsys) as run:
        yield run


class Server:
    """Answers each connection with *answer* and keeps the heads of the requests."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.heads: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.at = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # the test is over
            with connection:
                connection.settimeout(30)
                self.heads.append(connection.recv(65536))
                connection.sendall(self.answer)


def answer(
    body: bytes, *, status: str = "200 OK", kind: str = "application/json", **more: str
) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in more.items()]
    return ("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode() + body


@contextmanager
def servers() -> Iterator[tuple[Server, Server]]:
    """Yield a gateway without groups or dead letters, and another server."""
    with closing(Server(answer(b"{}"))) as gateway, closing(Server(answer(b"{}"))) as other:
        yield gateway, other


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("scheme", ["http://", "socks5://", ""])
@pytest.mark.parametrize("no_proxy", [None, "", "example.org", "*"])
def test_no_http_proxy_of_the_environment_is_used(
    orderlane: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    lower: bool,
    scheme: str,
    no_proxy: str | None,
) -> None:
    with servers() as (gateway, http_proxy):
        for name in NAMES[:3]:
            monkeypatch.setenv(name.lower() if lower else name, scheme + http_proxy.at)
        if no_proxy is not None:
            monkeypatch.setenv("no_proxy" if lower else "NO_PROXY", no_proxy)
        shown = orderlane("groups", "--http", gateway.at, "-o", "json")
        exported = orderlane("dead-letters", "export", "billing", "--http", gateway.at)
    assert (shown.code, shown.json) == (0, [])
    assert exported.code == 0
    assert http_proxy.heads == []
    assert len(gateway.heads) == 2
    assert all(f"Authorization: Bearer {TOKEN}".encode() in head for head in gateway.heads)
    assert all(head.startswith(b"GET /api/") for head in gateway.heads), "not by its full URL"


def test_a_redirect_is_not_followed(orderlane: CommandLine) -> None:
    with servers() as (gateway, other):
        gateway.answer = answer(b"", status="302 Found", Location=f"http://{other.at}/api/groups")
        sentence = orderlane.problem("groups", "--http", gateway.at)
    assert sentence.startswith(f"the proxy at {gateway.at} answers 302")
    assert other.heads == []
