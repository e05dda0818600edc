"""References between a session and the messages that an application keeps."""

from __future__ import annotations

import pickle

from tests.unit.thin_client.client_sessions import START, answer, pulled, session_with
from thin_client.lease import Lease
from thin_client.message import Message


def test_a_message_that_is_kept_keeps_no_other() -> None:
    """An application may keep a message forever."""
    session = session_with(concurrency=4, prefetch=0)
    session.begin_pull(START)
    response = answer(1, 2, 3, 4)
    for each in response.messages:
        each.orderKey = b"same"
    session.pull_answered(response, START)
    first = session.take(START)
    session.settle(first, None, START)
    batch = session.take_batch(START, most=2)
    session.settle_batch(batch, 2, None, START)

    assert isinstance(first, Lease)
    assert first.successor is None
    assert all(isinstance(each, Lease) and each.successor is None for each in batch)


def test_a_message_can_go_to_another_process() -> None:
    """A handler may use a process pool; the session's state of the message is not pickled."""
    session = session_with()
    message, _ = pulled(session, 1, 2)
    message.properties["a"] = "b"
    sent = pickle.loads(pickle.dumps(message))

    assert type(sent) is Message
    same = ("topic", "queue", "offset", "order_key", "properties", "attempt", "lease_id")
    assert [getattr(sent, name) for name in same] == [getattr(message, name) for name in same]
