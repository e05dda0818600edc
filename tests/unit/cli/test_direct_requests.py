"""The command line sends requests, and with them its token, to the named gateway only: not to an
HTTP proxy of the environment, and not to the target of a redirect.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from proxy.cli.connect import ADMIN_TOKEN
from tests.support.command_line import CommandLine, command_line
from tests.support.http_answers import HttpAnswers, json_answer

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


@contextmanager
def servers(answer: bytes = json_answer(b"{}")) -> Iterator[tuple[HttpAnswers, HttpAnswers]]:
    """Yield a gateway that answers with *answer*, and another server."""
    gateway, other = HttpAnswers(lambda _: answer), HttpAnswers(lambda _: json_answer(b"{}"))
    with closing(gateway), closing(other):
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
    with closing(HttpAnswers(lambda _: json_answer(b"{}"))) as target:
        moved = json_answer(b"", status="302 Found", Location=f"http://{target.at}/api/groups")
        with servers(moved) as (gateway, _):
            sentence = orderlane.problem("groups", "--http", gateway.at)
        assert sentence.startswith(f"the proxy at {gateway.at} answers 302")
        assert target.heads == []
