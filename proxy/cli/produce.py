"""``orderlane produce``: a producer for the terminal."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import FrameType, TracebackType
from typing import Annotated, Any, Self, TypeVar

import orjson
import typer

from broker_core.clock import now_ns
from proxy.cli.options import (
    DEFAULT_PROXY,
    CaOption,
    CertificateOption,
    HistoryOption,
    KeyOption,
    ProxyOption,
    TokenOption,
    client_tls,
    finite,
)
from proxy.cli.output import print_json
from proxy.cli.serving import STOPPED_AT_ONCE, open_history
from proxy.cli.streams import stdin
from proxy.diagnosis.findings import number
from proxy.errors import OrderlaneError
from proxy.history.record import History
from thin_client import Outgoing, Producer, SendFailed, new_message_id
from thin_client.delivery import UNIQUE_ID

_READ_BYTES = 65_536
_PART = 1_000
#: A message to send: its key, if any, and its body.
_KeyAndBody = tuple[str | None, bytes]
T = TypeVar("T")


def produce(
    topic: Annotated[str, typer.Argument(help="topic to send to")],
    count: Annotated[
        int | None, typer.Option(min=1, help="generate N messages instead of reading stdin")
    ] = None,
    keys: Annotated[int, typer.Option(min=0, help="number of keys of generated messages")] = 100,
    keyed: Annotated[
        bool, typer.Option("--keyed", help="read lines of stdin as KEY, tab, body")
    ] = False,
    key: Annotated[
        str | None, typer.Option(help="message key of every line of stdin, or generated message")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="tag of every message")] = None,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="messages per request")] = 100,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=1e9,
            help="maximum messages per second (default: no limit)",
            callback=finite,
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, help="timeout per request including retries, s", callback=finite),
    ] = 30.0,
    proxy: ProxyOption = DEFAULT_PROXY,
    token: TokenOption = None,
    tls_ca: CaOption = None,
    tls_certificate: CertificateOption = None,
    tls_key: KeyOption = None,
    history: HistoryOption = None,
) -> None:
    """Send the lines of stdin, or --count generated messages; messages of a key keep their order.

    A failed request is repeated with the same message ids until --timeout. SIGTERM stops after the
    current request.
    """
    if key is not None and (keyed or not key):
        raise OrderlaneError(
            "--key and --keyed exclude each other: the key is that of the option, or of each line"
            if keyed
            else "--key is empty: give a key, or leave the option out"
        )
    if rate is not None:
        batch = min(batch, max(1, int(rate / 10)))  # about ten requests per second
    made = _from_stdin(keyed=keyed) if count is None else _made(count, keys)
    if key is not None:
        made = ([(key, body) for _, body in part] for part in made)
    chunks = _chunks(made, topic=topic, tag=tag, batch=batch)
    try:
        tls = client_tls(tls_ca, tls_certificate, tls_key)
        producer = Producer(proxy, timeout_s=timeout, token=token, tls=tls)
    except ValueError as error:
        raise OrderlaneError(str(error)) from None
    with producer, closing(open_history(history, "produce")) as writer, _Ending() as ending:
        sent = _send(producer, chunks, ending, writer, rate=rate)
    print_json({"sent": sent})


def _send(
    producer: Producer,
    chunks: Iterator[list[Outgoing]],
    ending: _Ending,
    history: History,
    *,
    rate: float | None,
) -> int:
    """Send *chunks* until they are exhausted or a signal arrives; return the messages stored."""
    sent, began_ns = 0, now_ns()
    while chunk := ending.interrupt(lambda: next(chunks, None)):
        about = [_about(message) for message in chunk]
        history.write_many("send", about)
        try:
            producer.send_batch(chunk)
        except SendFailed as error:
            stored = [each for each in about if each["msg"] not in error.failures]
            failed = [each for each in about if each["msg"] in error.failures]
            event = "send_info" if error.outcome_unknown else "send_fail"
            history.write_many("send_ok", stored)
            history.write_many(event, [{**each, "error": str(error)} for each in failed])
            sent += len(stored)
            raise OrderlaneError(f"{error}; {number(sent, 'other message')} stored") from None
        except ValueError as error:
            raise OrderlaneError(f"{error}; {number(sent, 'earlier message')} stored") from None
        history.write_many("send_ok", about)
        sent += len(chunk)
        if rate is not None:
            ahead_s = sent / rate - (now_ns() - began_ns) / 1e9
            ending.interrupt(lambda: time.sleep(max(0.0, ahead_s)))  # noqa: B023  # called at once
    return sent


def _about(message: Outgoing) -> dict[str, Any]:
    about = {"msg": message.properties[UNIQUE_ID], "topic": message.topic, "key": message.key}
    return about if message.tag is None else {**about, "tag": message.tag}


# ---- input ---------------------------------------------------------------------------------------


def _chunks(
    parts: Iterator[list[_KeyAndBody]], *, topic: str, tag: str | None, batch: int
) -> Iterator[list[Outgoing]]:
    """Yield each of *parts* as messages, *batch* at a time, without waiting to fill a batch."""
    for part in parts:
        for start in range(0, len(part), batch):
            yield [
                Outgoing(topic, body, key=key, tag=tag, properties={UNIQUE_ID: new_message_id()})
                for key, body in part[start : start + batch]
            ]


def _made(count: int, keys: int) -> Iterator[list[_KeyAndBody]]:
    chooser = random.Random()
    for start in range(0, count, _PART):
        part: list[_KeyAndBody] = []
        for index in range(start, min(start + _PART, count)):
            key = f"key-{chooser.randrange(keys)}" if keys else None
            part.append((key, orjson.dumps({"n": index, "key": key})))
        yield part


def _from_stdin(*, keyed: bool) -> Iterator[list[_KeyAndBody]]:
    """Yield the lines of stdin as they arrive, without waiting to fill a batch, and without empty
    ones. Raises OrderlaneError at an invalid line, after those before it.
    """
    read = 0
    for lines in _lines():
        part: list[_KeyAndBody] = []
        for line_number, line in enumerate(lines, start=read + 1):
            try:
                if line:
                    part.append(_keyed(line, number=line_number) if keyed else (None, line))
            except OrderlaneError as error:
                yield part
                raise OrderlaneError(f"{error}; the lines before it are sent") from None
        read += len(lines)
        yield part


def _keyed(line: bytes, *, number: int) -> _KeyAndBody:
    """Return key and body of a line. Raises OrderlaneError."""
    key, tab, body = line.partition(b"\t")
    if not tab:
        raise OrderlaneError(f"line {number} of stdin has no tab: expected KEY, tab, body")
    if not body:
        raise OrderlaneError(f"line {number} of stdin has no body behind its tab")
    try:
        return key.decode() or None, body
    except UnicodeDecodeError:
        raise OrderlaneError(
            f"the key in line {number} of stdin is not UTF-8: {key[:40]!r}"
        ) from None


def _lines() -> Iterator[list[bytes]]:
    rest: list[bytes] = []  # pieces of a line: joining them one by one would be quadratic
    while data := os.read(stdin().fileno(), _READ_BYTES):
        first, *lines = data.split(b"\n")
        rest.append(first)
        if lines:
            lines.insert(0, b"".join(rest))
            rest = [lines.pop()]
            yield [line.rstrip(b"\r") for line in lines]
    if last := b"".join(rest):
        yield [last]


# ---- signals -------------------------------------------------------------------------------------


class _Interrupted(Exception):
    """A signal arrived while no request was running."""


class _Ending:
    """Handles SIGTERM and SIGINT: a running request is finished, reading and sleeping are aborted.

    A second signal ends the process immediately.
    """

    def __init__(self) -> None:
        self._ended = False
        self._interruptible = False
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for each in (signal.SIGTERM, signal.SIGINT):
            self._former[each] = signal.signal(each, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for each, handler in self._former.items():
            signal.signal(each, handler)

    def interrupt(self, action: Callable[[], T]) -> T | None:
        """Return the result of *action*; None if a signal arrives before or during it."""
        try:
            self._interruptible = True
            result = None if self._ended else action()
            self._interruptible = False  # here, because a signal during "finally" would raise there
        except _Interrupted:
            return None
        finally:
            self._interruptible = False
        return result

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._ended:
            os._exit(STOPPED_AT_ONCE)
        self._ended = True
        if self._interruptible:
            self._interruptible = False
            raise _Interrupted
