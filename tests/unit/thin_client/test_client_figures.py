"""Figures of a client: classes of times, and reports of a session (S11)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.thin_client.client_sessions import MS, START, answer, pulled, session_with
from thin_client.figures import Figures, bounds_ns, class_of
from thin_client.message import Defer
from thrift_idl import consumer


@given(us=st.integers(0, 10**12))
def test_a_time_is_in_its_class_and_classes_are_narrow(us: int) -> None:
    first_ns, next_ns = bounds_ns(class_of(us * 1000))

    assert first_ns <= us * 1000 < next_ns
    assert next_ns - first_ns <= max(1000, first_ns / 16)


def test_classes_follow_each_other() -> None:
    for place in range(600):
        assert bounds_ns(place)[1] == bounds_ns(place + 1)[0]
        assert class_of(bounds_ns(place)[0]) == place


def test_counting_a_message_uses_the_same_classes() -> None:
    for us in (0, 1, 31, 32, 33, 1_000, 123_456, 10**9):
        figures = Figures(handlers=1, prefetch=1)
        figures.handled(us * 1000)
        report = figures.report(0)
        assert report is not None
        assert report.handling == {class_of(us * 1000): 1}


def test_s11_a_pull_reports_what_was_handled_since_the_last_report() -> None:
    session = session_with(concurrency=2, prefetch=2)
    first, second = pulled(session, 1, 2)
    session.settle(first, None, START + 4 * MS)
    session.settle(second, Defer(), START + 5 * MS)  # given back unhandled

    request = session.begin_pull(START + 100 * MS)
    assert request.figures is None, "too soon after the first pull, which reported no times"
    session.pull_answered(consumer.PullResponse(messages=[], waited=True), START + 300 * MS)
    request = session.begin_pull(START + 300 * MS)

    assert request.figures == consumer.ClientFigures(
        handlers=2, prefetch=2, handling={class_of(4 * MS): 1}, roundTrips={class_of(0): 1}
    )


def test_s11_a_pull_that_waited_is_no_round_trip_and_a_settle_is_one() -> None:
    session = session_with(concurrency=2, prefetch=2)
    (message,) = pulled(session, 1)
    session.begin_pull(START)
    session.settle(message, None, START + MS)
    home = session.homes["a:1"]
    session.begin_control(home, START + 30 * MS)
    session.control_answered(home, consumer.AckAnswer(notHeld=[]), START + 32 * MS)
    session.pull_answered(consumer.PullResponse(messages=[], waited=True), START + 400 * MS)

    report = session.begin_pull(START + 400 * MS).figures
    assert report is not None
    assert report.roundTrips == {class_of(0): 1, class_of(2 * MS): 1}


def test_s11_messages_of_a_batch_share_its_time() -> None:
    session = session_with(concurrency=1, prefetch=4, max_run=4)
    session.begin_pull(START)
    run = answer(1, 2, 3)
    for message in run.messages or ():
        message.orderKey = b"one"
    session.pull_answered(run, START)
    batch = session.take_batch(START, most=4)
    assert len(batch) == 3
    session.settle_batch(batch, len(batch), None, START + 30 * MS)

    report = session.begin_pull(START + 300 * MS).figures
    assert report is not None
    assert report.handling == {class_of(30 * MS // len(batch)): len(batch)}


def test_s11_after_stop_the_last_settle_reports_the_rest() -> None:
    session = session_with(concurrency=1, prefetch=0)
    (message,) = pulled(session, 1)
    session.stop(START)
    session.settle(message, None, START + 9 * MS)
    home = session.homes["a:1"]
    request = session.begin_control(home, START + 9 * MS)

    assert isinstance(request, consumer.AckRequest)
    assert request.figures is not None
    assert request.figures.handling == {class_of(9 * MS): 1}
