"""A verb that a hand-over refuses is repeated for a while; other refusals are final."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from proxy.cli import connect
from tests.support.command_line import CommandLine, command_line


@pytest.fixture
def orderlane(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    with command_line(monkeypatch, capsys) as run:
        yield run


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace the clock of requests by one that sleeps at once."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    clock.sleep = sleep
    monkeypatch.setattr(connect, "time", clock)
    return clock


@contextmanager
def refusing(times: int, *, passing: bool = True) -> Iterator[tuple[str, list[str]]]:
    """Yield address and received requests of a proxy that refuses *times* requests."""
    received: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            received.append(self.path)
            refused = len(received) <= times
            body = b'{"error": "queue q is being handed over"}' if refused else b"{}"
            self.send_response(409 if refused else 200)
            if refused and passing:
                self.send_header("Retry-After", "1")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", received
        finally:
            server.shutdown()
            thread.join()


def test_a_hand_over_is_waited_for(orderlane: CommandLine) -> None:
    with refusing(3) as (http, received):
        ended = orderlane("groups", "--http", http, "-o", "json")
    assert (ended.code, ended.json, len(received)) == (0, [], 4)
    assert ended.err == "a queue changes its owner: trying again for up to 10 s\n"


def test_the_wait_is_bounded(orderlane: CommandLine, clock: SimpleNamespace) -> None:
    with refusing(10_000) as (http, received):
        ended = orderlane("groups", "--http", http)
    assert (ended.code, ended.err.count("\n")) == (2, 2)
    assert ended.err.endswith("answers 409: queue q is being handed over\n")
    assert clock.now == pytest.approx(10.0)
    assert len(received) == 21


def test_another_refusal_is_final(orderlane: CommandLine) -> None:
    with refusing(1, passing=False) as (http, received):
        sentence = orderlane.problem("groups", "--http", http)
    assert sentence.endswith("answers 409: queue q is being handed over")
    assert len(received) == 1
