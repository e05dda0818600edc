"""Lean loads of benchmarks: their messages, requests and percentiles."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.transport.TTransport import TMemoryBuffer

from bench.frame.context import OrderViolated
from bench.load.client import observer_of
from bench.load.consumer_record import ConsumerRecord
from bench.load.delays import Delays
from bench.load.links import Links
from bench.load.requests import BrokerPulls, BrokerSends, ProxySends, opaque_of, sequence_of
from bench.load.shape import Arrivals, Batches, Order, Shape, head_of, zipf_shares
from bench.load.stage import check_order
from broker_core.remoting.command import RemotingCommand, decode
from broker_core.remoting.headers import PullMessageHeader, SendMessageHeader
from broker_core.remoting.message import decode_properties
from broker_core.remoting.message_batch import decode_batch
from proxy.cli.serving import open_history
from thin_client.options import overridden
from thrift_idl import producer_service


def test_each_key_has_one_queue_and_one_connection_whatever_their_numbers() -> None:
    """Messages are stored in the order in which they were made."""
    for queues, connections in ((8, 1), (8, 64), (8, 12), (5, 3)):
        shape = Shape(queues=queues, keys=1_000)
        places: dict[int, set[tuple[int, int]]] = {}
        for number in range(connections):
            batches = Batches(shape, number=number, connections=connections)
            for _ in range(50):
                queue, messages = batches.next(4, 0)
                for key, _ in messages:
                    assert key % queues == queue
                    places.setdefault(key, set()).add((queue, number))

        assert all(len(each) == 1 for each in places.values())
        assert len(places) > 500 or connections * 200 < 1_000


def test_connections_without_a_key_say_so() -> None:
    """One key has one connection."""
    shape = Shape(queues=8, keys=1)
    assert [bool(Batches(shape, number=n, connections=4)) for n in range(4)] == [True, *[False] * 3]


def test_bodies_have_their_length_and_say_their_number_and_when_they_were_due() -> None:
    """Numbers count within a key."""
    batches = Batches(Shape(queues=1, keys=1, body_bytes=100), number=0, connections=1)
    _, messages = batches.next(3, 12_345)

    assert [len(body) for _, body in messages] == [100, 100, 100]
    assert [tuple(head_of(body)) for _, body in messages] == [(0, n, 12_345) for n in range(3)]


def test_arrivals_have_their_rate_and_their_skew() -> None:
    """Seeded, so the figures are exact."""
    shape = Shape(queues=8, keys=100, exponent=1.0)
    arrivals = Arrivals(shape, rate=1_000, began_ns=0)
    found = [arrivals.next() for _ in range(20_000)]
    times = [due_ns for due_ns, _ in found]

    assert times == sorted(times)
    assert times[-1] / 1e9 == pytest.approx(20, rel=0.05)
    share = Counter(key for _, key in found)[0] / len(found)
    assert share == pytest.approx(zipf_shares(100, 1.0)[0], rel=0.1)


def test_order_distinguishes_early_from_repeated_messages() -> None:
    """Each fault counts once."""
    order = Order()
    for number in (0, 1, 1, 3, 4):
        order.judge(7, number)

    assert (order.repeated, order.faults) == (1, 1)


def test_a_consumer_that_saw_keys_out_of_order_did_not_finish() -> None:
    """Messages that others may have taken are not early, and after a lapse messages may repeat."""
    check_order({"faults": 0, "repeated": 0})
    check_order({"faults": 9, "repeated": 0}, shared=True)
    check_order({"faults": 0, "repeated": 9}, lapsed={"lapses": 1})
    for figures, known in (
        ({"faults": 1, "repeated": 0}, {"lapsed": {"lapses": 1}}),
        ({"faults": 0, "repeated": 1}, {"shared": True, "lapsed": {}}),
    ):
        with pytest.raises(OrderViolated):
            check_order(figures, **known)  # type: ignore[arg-type]


def test_percentiles_are_ranks_and_the_warm_up_is_left_out() -> None:
    """The nearest rank: a measured value."""
    delays = Delays(from_ns=1)
    delays.add(0, 10**15)
    for value in range(1, 101):
        delays.add(1, 1 + value * 1_000_000)

    assert delays.figures() == {"p50_ms": 50, "p99_ms": 99, "p999_ms": 100, "max_ms": 100}
    assert Delays().figures() == {}


def test_the_client_reports_handlings_only_where_a_history_is_written(tmp_path: Path) -> None:
    """Calls are counted in any case."""
    for path, hears in ((None, False), (tmp_path / "client.jsonl", True)):
        taken = ConsumerRecord(most=1, warm_ns=0, split=False, counter=None)
        with closing(open_history(path, "client")) as history:
            observer = observer_of(taken, history, group="g", consumer="c")
            observer.on_pulled(3)
            observer.on_settled(2, 0)

        assert overridden(observer, "on_handle_start", "on_handle_end") is hears
        assert taken.calls == {"pulls": 1, "settles": 1}


def test_brokers_can_read_the_sends() -> None:
    """One message, and several."""
    sends = BrokerSends("orders")
    one = decode(memoryview(sends.frame(41, 3, [(7, b"body")], ["ID"])[4:]))
    header = SendMessageHeader.from_v2(one.ext)

    assert (one.opaque, header.topic, header.queue_id, one.body) == (41, "orders", 3, b"body")
    assert decode_properties((header.properties or "").encode()) == {
        "KEYS": "key-7",
        "UNIQ_KEY": "ID",
    }

    many = decode(memoryview(sends.frame(42, 5, [(7, b"a"), (15, b"b")], ["A", "B"])[4:]))

    assert SendMessageHeader.from_v2(many.ext).queue_id == 5
    assert [bytes(each.body) for each in decode_batch(many.body)] == [b"a", b"b"]


def test_a_broker_that_stored_nothing_is_an_error() -> None:
    """The request number is read from any answer."""
    sends = BrokerSends("orders")

    assert sends.check(RemotingCommand(0, opaque=1_234_567, flag=1).encode()) == 1_234_567
    with pytest.raises(RuntimeError, match="did not store"):
        sends.check(RemotingCommand(1, opaque=5, flag=1, remark="full").encode())


def test_sends_through_a_proxy_are_numbered() -> None:
    """By the sequence id, which the answer repeats."""
    sends = ProxySends("orders")
    for number in (1, 127, 128, 70_000):
        frame = sends.frame(number, 0, [(7, b"body")], ["ID"])
        protocol = TCompactProtocol(TMemoryBuffer(frame[4:]))
        name, _, sequence = protocol.readMessageBegin()
        arguments = producer_service.sendSync_args()
        arguments.read(protocol)

        assert (name, sequence, sequence_of(frame)) == ("sendSync", number, number)
        assert (arguments.message.key, arguments.message.body) == ("key-7", b"body")


def test_pulls_from_brokers_are_held_until_a_message_comes() -> None:
    """The opaque distinguishes answers."""
    pulls = BrokerPulls("orders", "g", 32)
    command = decode(memoryview(pulls.frame(pulls.template(), 6, 6, 1_000)[4:]))
    header = PullMessageHeader.from_ext(command.ext)

    assert (command.opaque, header.queue_id, header.queue_offset) == (6, 6, 1_000)
    assert header.suspend_timeout_millis > 0
    assert opaque_of(b'{"code":0,"opaque":17}') == 17


def test_a_closed_connection_is_opened_again_and_repeats_its_last_send() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        links = Links()
        link = links.connect(f"127.0.0.1:{server.getsockname()[1]}")
        links.send(link, b"\0\0\0\1x")
        first, _ = server.accept()
        assert first.recv(100) == b"\0\0\0\1x"
        first.close()
        assert links.wait(5) == [link]
        with pytest.raises(ConnectionError):
            list(link.frames())

        links.again(link)
        second, _ = server.accept()
        assert second.recv(100) == b"\0\0\0\1x"
        second.sendall(b"\0\0\0\2yz")
        assert links.wait(5) == [link]
        assert list(link.frames()) == [b"\0\0\0\2yz"]
        second.close()
        link.socket.close()
