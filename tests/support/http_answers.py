"""A server that answers HTTP requests with given bytes, for tests of the command line."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable


class HttpAnswers:
    """Answers each request with ``answer(number)``, from 1, and keeps the heads of the requests."""

    def __init__(self, answer: Callable[[int], bytes]) -> None:
        self._answer = answer
        self.heads: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.at = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
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
                connection.sendall(self._answer(len(self.heads)))


def json_answer(body: bytes, *, status: str = "200 OK", **more: str) -> bytes:
    """Return an answer with a JSON body; *more* are further headers, with _ for -."""
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body
