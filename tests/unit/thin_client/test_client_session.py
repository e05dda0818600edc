"""The session's rules, one dialogue each; tests/property has a random model."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.thin_client.client_sessions import MS, START, answer, pulled, session_with
from thin_client.backoff import backoff_ns, is_news, tries_elsewhere
from thin_client.errors import ConnectionLost, ProtocolError
from thin_client.message import Defer
from thrift_idl import consumer


def test_s1_verdicts_ride_to_their_own_proxy_only() -> None:
    """Once pulls go to another proxy, old verdicts are settled at the proxy of their leases."""
    session = session_with(concurrency=4, prefetch=0)
    old, late = pulled(session, 1, 2)
    session.begin_pull(START)
    session.pull_failed(START, 0.0)
    (new,) = pulled(session, 3, home="b:2", now_ns=START + 100 * MS)
    for message in (old, new):
        session.settle(message, None, START + 100 * MS)

    (riding,) = session.begin_pull(START + 100 * MS).acks
    settle = session.begin_control(session.homes["a:1"], START + 101 * MS)

    assert riding.acked == [3]
    assert isinstance(settle, consumer.AckRequest)
    assert settle.acks[0].acked == [1]
    assert not late.lease_lost


def test_s2_a_verdict_waits_for_the_linger_without_a_pull() -> None:
    """With no pull pending or due, the verdict waits no longer than the linger."""
    session = session_with(concurrency=1, prefetch=3)
    (first,) = pulled(session, 1, 2, 3, 4)
    session.settle(first, None, START)
    home = session.homes["a:1"]

    assert session.pull_at() is None
    assert session.control_at(home) == START + 20 * MS
    assert session.begin_control(home, START + 19 * MS) is None


def test_s2_a_verdict_hurries_when_only_a_pull_can_bring_more() -> None:
    """With a pull at the proxy and no message waiting in the client it is sent at once."""
    session = session_with(concurrency=2, prefetch=0)
    first, _ = pulled(session, 1, 2)
    session.settle(first, None, START + MS)
    session.begin_pull(START + MS)
    assert session.begin_control(session.homes["a:1"], START + 2 * MS) is None  # sent with a pull

    session.settle(_, None, START + 2 * MS)
    assert session.control_at(session.homes["a:1"]) == START + 2 * MS


def test_s2_a_verdict_hurries_no_later_than_1_ms_after_a_rather_full_answer_was_taken() -> None:
    """The answer of the next pull is probably on its way."""
    session = session_with(concurrency=4, prefetch=0)
    first, second, third = pulled(session, 1, 2, 3, now_ns=START)  # of four
    session.begin_pull(START)
    home = session.homes["a:1"]

    session.settle(first, None, START)
    assert session.control_at(home) == START + MS
    session.begin_control(home, START + MS)
    session.control_answered(home, consumer.AckAnswer(), START + MS)
    session.settle(second, None, START + 5 * MS)
    assert session.control_at(home) == START + 5 * MS, "it never waits for more than that"
    session.begin_control(home, START + 5 * MS)
    session.control_answered(home, consumer.AckAnswer(), START + 5 * MS)

    session.pull_answered(answer(4), START + 5 * MS)  # of one
    fourth = session.take(START + 5 * MS)
    session.settle(third, None, START + 6 * MS)
    session.begin_pull(START + 6 * MS)
    session.pull_answered(answer(5), START + 6 * MS)  # of three: the proxy has no more
    session.take(START + 6 * MS)
    session.begin_pull(START + 6 * MS)
    session.settle(fourth, None, START + 6 * MS)
    assert session.control_at(home) == START + 6 * MS


def requests_of_a_drain(messages: int, *, handling_ns: int, answer_ns: int) -> tuple[int, int]:
    """Return the pulls and settles of a client that reads no answer while a message waits.

    The proxy has a message of another key for each free place.
    """
    session = session_with(concurrency=64, prefetch=192)
    now_ns, handled, delivered, pulls, settles = START, 0, 0, 0, 0
    pulled_ns = settled_ns = 1 << 63  # when their answers arrive
    while handled < messages:
        at_ns = session.pull_at()
        if at_ns is not None and at_ns <= now_ns:
            asked = session.begin_pull(now_ns).maxBatchSize
            pulled_ns, pulls = now_ns + answer_ns, pulls + 1
        homes = list(session.homes.values())
        due_ns = [at for home in homes if (at := session.control_at(home)) is not None]
        if (message := session.take(now_ns)) is not None:
            now_ns += handling_ns
            session.settle(message, None, now_ns)
            handled += 1
        elif settled_ns <= now_ns:
            session.control_answered(homes[0], consumer.AckAnswer(), now_ns)
            settled_ns = 1 << 63
        elif due_ns and due_ns[0] <= now_ns:
            if session.begin_control(homes[0], now_ns) is not None:
                settled_ns, settles = now_ns + answer_ns, settles + 1
        elif pulled_ns <= now_ns:
            session.pull_answered(answer(*range(delivered, delivered + asked)), now_ns)
            delivered, pulled_ns = delivered + asked, 1 << 63
        else:
            now_ns = min(pulled_ns, settled_ns, *due_ns)
    return pulls, settles


@pytest.mark.parametrize(
    ("handling_us", "answer_us", "settles"),
    [(5, 100, 0), (5, 500, 0), (5, 1_400, 0), (10, 100, 0), (10, 1_900, 0), (5, 1_500, 99)],
)
def test_s2_a_drain_with_idle_handlers_makes_one_request_for_160_messages(
    handling_us: int, answer_us: int, settles: int
) -> None:
    """With 64 handlers and a prefetch of 192, of which a pull leaves 95: it asks for 161. Only if
    its answer takes 1 ms longer than these, their verdicts are sent alone.
    """
    requests = requests_of_a_drain(
        16_100, handling_ns=handling_us * 1_000, answer_ns=answer_us * 1_000
    )
    assert requests == (100, settles)


def test_s3_a_useless_verdict_is_dropped() -> None:
    """After the leases of a dead proxy have expired, their verdicts are dropped."""
    session = session_with()
    (message,) = pulled(session, 1)
    session.settle(message, None, START)
    home = session.homes["a:1"]
    for now_ns in (START + 1000 * MS, START + 3000 * MS):
        session.begin_control(home, now_ns)
        session.control_failed(home, now_ns, 0.0)

    assert session.control_at(home) is None
    assert session.drained


def test_s4_a_message_that_waited_too_long_needs_an_extend() -> None:
    """After its deadline it goes to a handler only once the proxy has confirmed the lease."""
    session = session_with(concurrency=1, prefetch=1)
    (first,) = pulled(session, 1, 2)
    late_ns = START + 3001 * MS
    session.settle(first, None, late_ns)
    assert session.take(late_ns) is None

    home = session.homes["a:1"]
    extend = session.begin_control(home, late_ns)
    assert isinstance(extend, consumer.ExtendRequest)
    session.control_answered(home, consumer.AckAnswer(notHeld=[]), 0)
    message = session.take(late_ns)

    assert message is not None
    assert message.deadline_ns == late_ns + 3000 * MS


def test_s5_leases_of_several_lengths_are_extended_by_the_shortest() -> None:
    """A longer extension is never requested, since the proxy would silently cap it."""
    session = session_with(concurrency=4, prefetch=0)
    pulled(session, 1, lease_ms=9000)
    (short,) = pulled(session, 2, lease_ms=3000)
    home = session.homes["a:1"]

    assert session.control_at(home) == START + 1000 * MS
    extend = session.begin_control(home, START + 1000 * MS)
    session.control_answered(home, consumer.AckAnswer(notHeld=[]), 0)

    assert isinstance(extend, consumer.ExtendRequest)
    assert (extend.ms, len(extend.leases)) == (3000, 2)
    assert short.deadline_ns == START + 4000 * MS
    assert session.control_at(home) == START + 2000 * MS


def test_s7_room_is_what_is_not_held() -> None:
    """A pull requests messages for the free places; none is due while enough messages wait."""
    session = session_with(concurrency=2, prefetch=4)
    assert session.begin_pull(START).maxBatchSize == 6
    session.pull_answered(answer(1, 2, 3, 4, 5, 6), START)
    first = session.take(START)
    assert first is not None
    session.take(START)
    assert session.pull_at() is None
    session.settle(first, None, START)
    for _ in range(3):
        message = session.take(START)
        assert message is not None
        session.settle(message, None, START)

    assert session.begin_pull(START).maxBatchSize == 4


def test_s8_what_arrives_after_stop_goes_back() -> None:
    """The pending pull is awaited, and its messages are released."""
    session = session_with()
    session.begin_pull(START)
    session.stop(START)
    assert not session.drained
    session.pull_answered(answer(1), START)
    settle = session.begin_control(session.homes["a:1"], START)

    assert session.take(START) is None
    assert isinstance(settle, consumer.AckRequest)
    assert settle.acks[0].released == [1]


def test_s9_a_failed_pull_is_repeated_and_its_leases_run_from_the_first_sending() -> None:
    session = session_with(concurrency=1)
    first = session.begin_pull(START)
    session.pull_failed(START + 10 * MS, 0.0)
    again = session.begin_pull(START + 500 * MS)
    session.pull_answered(answer(1), START + 510 * MS)

    assert again.requestId == first.requestId
    message = session.take(START + 510 * MS)
    assert message is not None
    assert message.deadline_ns == START + 3000 * MS
    assert session.begin_pull(START + 520 * MS).requestId != first.requestId


def test_s9_once_its_leases_must_be_over_a_failed_pull_is_not_repeated() -> None:
    session = session_with()
    pulled(session, 1, lease_ms=400)
    first = session.begin_pull(START)
    session.pull_failed(START, 0.0)
    again = session.begin_pull(START + 499 * MS)  # a pull waits 100 ms, a lease lasts 400 ms
    session.pull_failed(START + 499 * MS, 0.0)
    late = session.begin_pull(START + 500 * MS)

    assert first.requestId == again.requestId != late.requestId


def test_s9_only_a_connection_that_broke_is_tried_at_the_same_address_and_once() -> None:
    broke = ConnectionLost("it closed", broke=True)
    assert not tries_elsewhere(broke, 1)
    assert tries_elsewhere(broke, 2)
    assert tries_elsewhere(ConnectionLost("no answer within 3 s"), 1)
    assert tries_elsewhere(ProtocolError("another kind of server"), 1)


def test_linger_follows_the_lease() -> None:
    """A pull waits a quarter of the lease, so that most of its messages' leases is left."""
    session = session_with(concurrency=4)
    pulled(session, 1, lease_ms=2000)

    assert session.begin_pull(START).maxLingerTime == 500


def test_an_early_empty_answer_pauses_pulling() -> None:
    """A proxy that shuts down answers at once without messages; pulls do not loop tightly."""
    session = session_with()
    session.begin_pull(START)
    session.pull_answered(consumer.PullResponse(messages=[]), START + MS)
    early = session.pull_at()
    session.begin_pull(START + 60 * MS)
    session.pull_answered(consumer.PullResponse(messages=[]), START + 1060 * MS)

    assert early is not None
    assert early > START + MS
    assert session.pull_at() <= START + 1060 * MS  # after a full wait it goes on at once


def test_backoff_grows_to_a_limit_and_spreads() -> None:
    """It doubles from 50 ms to 5 s; jitter subtracts up to half."""
    assert [backoff_ns(n, 1.0) // MS for n in (1, 2, 3, 8, 100)] == [50, 100, 200, 5000, 5000]
    assert backoff_ns(1, 0.0) == backoff_ns(1, 1.0) // 2


def two_messages(**second: Any) -> list[consumer.Message]:
    """Return two messages; *second*: fields of the second one."""
    given = [{"leaseId": number, "offset": number, "value": b""} for number in (1, 2)]
    return [consumer.Message(**given[0]), consumer.Message(**{**given[1], **second})]


@pytest.mark.parametrize(
    "spoilt",
    [
        {"context": None},
        {"context": consumer.Context(groupId="g", topic="t")},
        {"leaseMs": None},
        {"leaseMs": -5},
        {"messages": two_messages(leaseId=None)},
        {"messages": two_messages(value=None)},
    ],
)
def test_a_malformed_answer_changes_nothing(spoilt: dict[str, Any]) -> None:
    """It raises ProtocolError; reported as a failed pull, its verdicts are sent again."""
    session = session_with(concurrency=4)
    (message,) = pulled(session, 9)
    session.settle(message, None, START)
    session.begin_pull(START)
    context = consumer.Context(groupId="g", topic="t", qid="q#1")
    fields = {"context": context, "messages": two_messages(), "leaseMs": 3000, "home": "a:1"}
    response = consumer.PullResponse(**{**fields, **spoilt})
    with pytest.raises(ProtocolError):
        session.pull_answered(response, START)
    session.pull_failed(START, 0.0)
    settle = session.begin_control(session.homes["a:1"], START + 20 * MS)

    assert session.take(START) is None
    assert isinstance(settle, consumer.AckRequest)
    assert settle.acks[0].acked == [9]


def test_a_repeated_message_is_taken_in_once() -> None:
    """A lease in two answers is one message."""
    session = session_with(concurrency=4, prefetch=4)

    assert len(pulled(session, 1, 2)) == 2
    assert pulled(session, 1, 2) == []


def test_settling_twice_is_an_error_that_names_the_message() -> None:
    session = session_with()
    (message,) = pulled(session, 1)
    session.settle(message, Defer(), START)

    with pytest.raises(KeyError, match="t/q#1 at offset 1 is not being handled"):
        session.settle(message, None, START)


def test_repr_is_a_status_line() -> None:
    session = session_with()
    pulled(session, 1, 2, 3)

    assert repr(session) == "<Session g open=2 ready=1 held=3 pulling=False homes=1>"


def test_a_long_outage_is_logged_less_and_less() -> None:
    assert [number for number in range(1, 100) if is_news(number)] == [1, 2, 4, 8, 16, 32, 64]


def run_of(*numbers: int, key: bytes = b"k") -> consumer.PullResponse:
    """Return an answer with consecutive messages of one key."""
    response = answer(*numbers)
    for message in response.messages:
        message.orderKey = key
    return response


def test_s10_a_run_is_handled_in_sequence_and_ends_at_the_first_failure() -> None:
    """The verdict on the failed message is sent together with the return of the rest."""
    session = session_with(concurrency=4, prefetch=8)
    session.begin_pull(START)
    session.pull_answered(run_of(1, 2, 3, 4), START)
    first = session.take(START)
    assert session.take(START) is None
    session.settle(first, None, START)
    second = session.take(START)
    session.settle(second, ValueError("no"), START)

    assert session.take(START) is None
    (batch,) = session.begin_pull(START).acks
    assert batch.acked == [1]
    assert [(nack.leaseId, nack.reason) for nack in batch.nacked] == [(2, "ValueError: no")]
    assert batch.released == [3, 4]


def test_s10_another_answers_messages_of_the_key_are_no_part_of_the_run() -> None:
    session = session_with(concurrency=4, prefetch=8)
    for numbers in ((1, 2), (3,)):
        session.begin_pull(START)
        session.pull_answered(run_of(*numbers), START)
    session.settle(session.take(START), Defer(), START)

    third = session.take(START)
    assert third is not None
    assert third.lease_id == 3


def test_s2_a_verdict_inside_a_run_releases_nothing_and_does_not_hurry() -> None:
    session = session_with(concurrency=1, prefetch=8)
    session.begin_pull(START)
    session.pull_answered(run_of(1, 2), START)
    session.begin_pull(START)  # waits for the key's next messages
    home = session.homes["a:1"]
    session.settle(session.take(START), None, START + MS)
    assert session.control_at(home) == START + 21 * MS
    session.settle(session.take(START), None, START + 2 * MS)
    assert session.control_at(home) == START + MS


def test_a_shell_is_stirred_when_a_pull_gets_due_and_not_before() -> None:
    """While handlers work, the feeder sleeps until half of the prefetched messages are taken."""
    session = session_with(concurrency=1, prefetch=4)
    session.begin_pull(START)
    session.pull_answered(answer(1, 2, 3, 4, 5), START)
    stirred = []
    message = session.take(START)
    session.settle(message, None, START)  # the first verdict has a time limit
    for _ in range(4):
        session.calm()
        message = session.take(START)
        session.settle(message, None, START)
        stirred.append((session.stirred, session.pull_at() is not None))

    assert stirred == [(False, False), (False, False), (True, True), (True, True)]


def test_a_shell_is_not_stirred_by_a_take_after_which_nothing_is_due() -> None:
    """A full client sends no pull, and a take that finds nothing changes nothing."""
    session = session_with(concurrency=1, prefetch=0)
    session.begin_pull(START)
    session.pull_answered(answer(1), START)
    session.calm()
    message = session.take(START)
    assert (session.stirred, session.pull_at()) == (False, None)
    session.settle(message, None, START)
    assert (session.stirred, session.pull_at()) == (True, 0)
    session.calm()
    assert (session.take(START), session.take_batch(START, most=2)) == (None, [])
    assert not session.stirred


def test_a_shell_is_stirred_when_a_full_client_may_pull_again() -> None:
    """Also by a verdict that is not the first one to wait for its proxy."""
    session = session_with(concurrency=3, prefetch=0)
    one, two = pulled(session, 1, 2)
    pulled(session, 3, home="b:1")
    session.settle(one, None, START)  # waits: pulls are sent to the other proxy now
    pulled(session, 4, home="b:1")
    session.calm()
    assert session.pull_at() is None
    session.settle(two, None, START)
    assert (session.stirred, session.pull_at()) == (True, 0)


def test_a_shell_is_stirred_when_a_verdict_begins_to_hurry() -> None:
    """The first of a key releases nothing while the second waits in the client; the second may."""
    session = session_with(concurrency=1, prefetch=4)
    session.begin_pull(START)
    response = answer(1, 2, 3, 4, 5)
    for each in response.messages[:2]:
        each.orderKey = b"same"
    session.pull_answered(response, START)
    first = session.take(START)
    session.begin_pull(START)
    session.settle(first, None, START)
    home = session.homes["a:1"]
    patient_ns = session.control_at(home)
    session.calm()
    session.settle(session.take(START), None, START)

    assert session.stirred
    assert (patient_ns, session.control_at(home)) == (START + 20 * MS, START + 3 * MS)
