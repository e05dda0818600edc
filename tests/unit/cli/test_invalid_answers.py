"""Invalid answers of proxies end the command line with one sentence, never a traceback."""

from __future__ import annotations

import getpass
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from proxy.cli.connect import ADMIN_TOKEN, body_of
from proxy.errors import OrderlaneError
from tests.support.command_line import CommandLine

Answering = Callable[[bytes], str]


@pytest.fixture
def answering() -> Iterator[Answering]:
    """Start a server that answers each request with these bytes, and yield its host:port."""
    with ExitStack() as stack:

        def start(answer: bytes) -> str:
            listener = stack.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
            stack.callback(listener.shutdown, socket.SHUT_RDWR)  # ends a pending accept

            def serve() -> None:
                while True:
                    try:
                        connection, _ = listener.accept()
                    except OSError:
                        return  # the test is over
                    with connection:
                        connection.settimeout(30)
                        connection.recv(65536)
                        connection.sendall(answer)
                        connection.shutdown(socket.SHUT_WR)
                        # Closing with unread bytes, such as a body, would reset the connection.
                        while connection.recv(65536):
                            pass

            threading.Thread(target=serve, daemon=True).start()
            return f"127.0.0.1:{listener.getsockname()[1]}"

        yield start


def head(status: str, kind: str, length: int) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n".encode()


JSON = "application/json"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (head("200 OK", "text/html", 6) + b"<html>", "(the server there sends text/html): check"),
        (b"no HTTP\r\n\r\n", "(the server there does not speak HTTP: BadStatusLine): check"),
        (head("200 OK", JSON, 500) + b"{", "is incomplete: the connection broke (IncompleteRead)"),
        (head("503 Service Unavailable", JSON, 500) + b"{", "answers 503: Service Unavailable"),
    ],
)
def test_an_invalid_answer_is_one_sentence(
    orderlane: CommandLine, answering: Answering, answer: bytes, sentence: str
) -> None:
    at = answering(answer)
    for words in (("groups",), ("audit", "ls"), ("groups", "pause", "g", "--reason", "why")):
        assert sentence in orderlane.problem(*words, "--http", at)


@pytest.mark.parametrize("host", ["two words", "two\nlines", "\x7f", "a" * 70])
def test_invalid_addresses_are_one_sentence(orderlane: CommandLine, host: str) -> None:
    ended = orderlane("groups", "--http", f"{host}:1")
    assert ended.code == 2
    assert ended.err.startswith(("orderlane: address", "orderlane: no proxy answers at"))


def test_a_line_break_after_a_token_is_ignored(
    orderlane: CommandLine, answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ADMIN_TOKEN, "token\n")
    at = answering(head("200 OK", JSON, 2) + b"{}")
    assert orderlane("groups", "--http", at).code == 0


@pytest.mark.parametrize("token", ["one\ntwo", "clé\u2026"])
def test_an_invalid_token_is_reported_without_its_text(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv(ADMIN_TOKEN, token)
    problem = orderlane.problem("groups", "--http", "127.0.0.1:1")
    assert problem == f"{ADMIN_TOKEN} is invalid: set it to a token made by orderlane token"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"offset": 10**30}, b'{"offset": 1000000000000000000000000000000}'),
        ({"rate": float("nan"), "to": [float("-inf")]}, b'{"rate": "NaN", "to": ["-Infinity"]}'),
        ({"key": "k\u00e4se \u2603"}, '{"key": "k\u00e4se \u2603"}'.encode()),
    ],
)
def test_numbers_that_json_lacks_are_sent_and_refused_by_the_proxy(
    asked: dict[str, object], said: bytes
) -> None:
    """A number converted to null would mean no limit."""
    assert body_of(asked) == said


def test_values_that_json_cannot_represent_are_one_sentence() -> None:
    endless: list[object] = []
    endless.append(endless)
    for wrong in ({(1, 2): 3}, endless):
        with pytest.raises(OrderlaneError, match="cannot be written as JSON"):
            body_of({"settings": wrong})


def test_arguments_of_invalid_utf_8_are_one_sentence(orderlane: CommandLine) -> None:
    where = ("--topic", "orders", "--reason", "why", "--http", "127.0.0.1:1")
    for verb in (("offsets", "show", "\udcff"), ("key", "park", "billing", "\udcff", *where)):
        assert orderlane.problem(*verb) == (
            "'\\udcff' is not valid UTF-8: write a key of other bytes as 0x and hex digits"
        )


def test_a_user_without_a_name_confirms_a_clock(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose user is a bare number."""

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr(getpass, "getuser", nameless)
    confirm = ("retention", "confirm-clock", "broker-a", "--reason", "checked")
    problem = orderlane.problem(*confirm, "--nameserver", "127.0.0.1:1")
    assert "check that it is running and that --nameserver is correct" in problem
