"""Messages to and from Apache RocketMQ's own client, byte by byte (``Relay*.java``)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from hypothesis import strategies as st

from testkit.java import java
from tests.conformance.rocketmq.programs import rocketmq_programs
from thin_client.delivery import Outgoing

_LIMIT_S = 90
#: Longest line of a Java program: a message of 4 MiB as Base64, and 32 KB of properties.
_LINE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of Java's producer: position and id of a message, or why it was not sent."""

    queue_id: int = -1
    offset: int = -1
    message_id: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message received by either client; ``properties`` are the application's."""

    queue_id: int
    offset: int
    message_id: str
    body: bytes
    key: str | None
    tag: str | None
    properties: dict[str, str] = field(default_factory=dict)


# ---- programs -----------------------------------------------------------------------------------


async def send_by_java(
    version: str, folder: Path, nameserver: str, topic: str, messages: Sequence[Outgoing]
) -> list[Sent]:
    """Send *messages* with Java's producer, each key's in order; return the result of each."""
    sent = [Sent()] * len(messages)
    async with _program(version, folder, "RelaySend", nameserver, topic) as process:
        lines = [_line(number, each) for number, each in enumerate(messages)]
        for line in await _talk(process, lines):
            number, outcome, *about = line.split()
            if outcome == "ok":
                sent[int(number)] = Sent(int(about[0]), int(about[1]), about[2])
            else:
                sent[int(number)] = Sent(failure=_text(about[0]) or "")
    return sent


@asynccontextmanager
async def receiving_by_java(
    version: str, folder: Path, nameserver: str, topic: str
) -> AsyncIterator[AsyncIterator[Received]]:
    """Run Java's orderly consumer in the context; yields all messages, from the first on."""
    async with _program(version, folder, "RelayReceive", nameserver, topic) as process:
        yield _received(process)


async def hashes_by_java(
    version: str, folder: Path, keys: Sequence[str], counts: Sequence[int]
) -> list[list[int]]:
    """Return each key's hash, and its queue for each number of queues in *counts*, by Java."""
    async with _program(version, folder, "RelayHash", *counts) as process:
        lines = await _talk(process, [_of_text(key) for key in keys])
    return [[int(number) for number in line.split()] for line in lines]


async def filters_by_java(
    version: str, folder: Path, cases: Sequence[tuple[str, dict[str, str]]]
) -> list[bool | None]:
    """Return whether a message with these properties passes the filter, by Java; None: refused."""
    lines = [
        " ".join(_of_text(text) for text in (filter_, *chain.from_iterable(having.items())))
        for filter_, having in cases
    ]
    async with _program(version, folder, "RelayFilter") as process:
        answers = await _talk(process, lines)
    return [{"true": True, "false": False, "refused": None}[answer] for answer in answers]


@asynccontextmanager
async def _program(
    version: str, folder: Path, name: str, *arguments: object
) -> AsyncIterator[asyncio.subprocess.Process]:
    command = java(await asyncio.to_thread(rocketmq_programs, version), name, *arguments)
    command[1:1] = [f"-Duser.home={folder}"]  # the client's own log
    with (folder / f"{name}.stderr").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=_LINE_BYTES,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _talk(process: asyncio.subprocess.Process, lines: Sequence[str]) -> list[str]:
    async with asyncio.timeout(_LIMIT_S):
        answer, _ = await process.communicate("".join(f"{each}\n" for each in lines).encode())
    assert process.returncode == 0
    answers = answer.decode().splitlines()
    assert len(answers) == len(lines), answers[:3] + answers[-3:]
    return answers


async def _received(process: asyncio.subprocess.Process) -> AsyncIterator[Received]:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        queue_id, offset, message_id, body, key, tag, *properties = line.decode().split()
        texts = [_text(each) or "" for each in properties]
        yield Received(
            queue_id=int(queue_id),
            offset=int(offset),
            message_id=message_id,
            body=base64.b64decode(body[1:]),
            key=_text(key),
            tag=_text(tag),
            properties=dict(zip(texts[::2], texts[1::2], strict=True)),
        )


def _line(number: int, message: Outgoing) -> str:
    assert isinstance(message.body, bytes)
    sharding_key = message.key if message.sharding_key is None else message.sharding_key
    texts = [sharding_key, message.key, message.tag]
    for name, value in message.properties.items():
        texts += [name, value]
    body = base64.b64encode(message.body).decode()
    first, *rest = map(_of_text, texts)
    return " ".join([str(number), f"={body}", first, *rest])


def _of_text(text: str | None) -> str:
    if text is None:
        return "-"
    return "=" + base64.b64encode(text.encode("utf-16-be", "surrogatepass")).decode()


def _text(field: str) -> str | None:
    if field == "-":
        return None
    return base64.b64decode(field[1:]).decode("utf-16-be", "surrogatepass")


# ---- messages -----------------------------------------------------------------------------------

#: Any characters except surrogates, which UTF-8 cannot encode, and the two property separators.
_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02")


def _texts(max_size: int) -> st.SearchStrategy[str]:
    """Java's client refuses values that are blank to it: only characters up to U+0020."""
    texts = st.text(_CHARACTERS, min_size=1, max_size=max_size)
    return texts.filter(lambda text: any(character > " " for character in text))


_KEYS = st.one_of(
    st.none(),
    st.sampled_from(["a", "b c", "ключ", "鍵", "😀", "polygenelubricants", "a\u0000b"]),
    st.integers(0, 500).map(lambda number: f"customer-{number}"),
    _texts(40),
)

MESSAGES = st.builds(
    Outgoing,
    topic=st.just("orders"),
    body=st.binary(min_size=1, max_size=300),
    key=_KEYS,
    sharding_key=st.one_of(st.none(), _KEYS),
    tag=st.one_of(st.none(), st.sampled_from(["paid", "a || b", "*"]), _texts(20)),
    # RocketMQ's own names are in upper case.
    properties=st.dictionaries(
        _texts(20).filter(lambda name: name != name.upper()), _texts(60), max_size=4
    ),
)
