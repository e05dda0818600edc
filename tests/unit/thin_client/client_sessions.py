"""A session of the thin client, and answers to its pulls."""

from __future__ import annotations

from thin_client.message import Message
from thin_client.session import Session
from thin_client.session_options import SessionOptions
from thrift_idl import consumer

MS = 1_000_000
START = 1_000_000 * MS


def session_with(*, concurrency: int = 2, prefetch: int = 2, max_run: int = 1) -> Session:
    return Session(
        SessionOptions(
            group="g",
            topics=None,
            client_id="c",
            version="v",
            concurrency=concurrency,
            prefetch=prefetch,
            max_run=max_run,
        )
    )


def answer(
    *numbers: int, home: str | None = "a:1", lease_ms: int = 3000, keys: bool = True
) -> consumer.PullResponse:
    messages = [
        consumer.Message(
            leaseId=number, offset=number, value=b"", orderKey=b"%d" % number if keys else None
        )
        for number in numbers
    ]
    context = consumer.Context(groupId="g", topic="t", qid="q#1")
    return consumer.PullResponse(context=context, messages=messages, leaseMs=lease_ms, home=home)


def pulled(session: Session, *numbers: int, now_ns: int = START, **options) -> list[Message]:
    """Pull these messages, and take as many as handlers can get."""
    session.begin_pull(now_ns)
    session.pull_answered(answer(*numbers, **options), now_ns)
    taken = []
    while (message := session.take(now_ns)) is not None:
        taken.append(message)
    return taken
