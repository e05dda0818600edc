"""Rows of a task, sent to scripted proxies: retries, earlier proxies, queues that move."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from thrift.Thrift import TApplicationException

from broker_core.remoting.message_batch import decode_batch
from testkit.scripted_proxy import Request, ScriptedProxy
from tests.integration.thin_client.spark.bulk_site import Script, hangs_up
from thin_client.delivery import UNIQUE_ID
from thin_client.encoded_requests import route_number
from thin_client.errors import SendFailed
from thin_client.key_hash import key_hash
from thin_client.spark.encoded_producer import EncodedProducer, Support
from thin_client.spark.encoding import Rows
from thin_client.spark.options import Connecting, WriteOptions
from thin_client.spark.outgoing import Origin
from thin_client.spark.row_sender import RowSender
from thin_client.spark.server_order import KnownFailures
from thrift_idl import producer

pytestmark = pytest.mark.sockets  # lanes are threads of their own

ORIGIN = Origin("job", 0, "orders", "sparkBatchId")


def names(*qids: str) -> Script:
    """Return a script that names the queues of a topic."""

    async def answer(request: Request) -> producer.WritableQueues:
        return producer.WritableQueues(0, None, list(qids))

    return answer


def answers(code: int, reason: str, stored: int | None = None) -> Script:
    async def answer(request: Request) -> producer.EncodedResult:
        return producer.EncodedResult(code, reason, stored)

    return answer


async def unknown(request: Request) -> object:
    raise TApplicationException(TApplicationException.UNKNOWN_METHOD, "unknown method")


async def write(
    proxy: ScriptedProxy,
    *batches: Sequence[int],
    others: Sequence[ScriptedProxy] = (),
    task: int = 0,
    failures: KnownFailures | None = None,
    patience_s: float = 10.0,
    keyed: bool = True,
    lanes: int = 1,
) -> None:
    """Write rows with these numbers as values, as a task of this number."""
    servers = tuple(each.address for each in (proxy, *others))
    connecting = Connecting(servers=servers, token="secret", request_timeout_s=5.0)
    options = WriteOptions(connecting=connecting, topic="orders", concurrent_requests=lanes)
    origin = replace(ORIGIN, partition=task)

    def run() -> None:
        with RowSender(options, origin, patience_s=patience_s, failures=failures) as sender:
            first = 0
            for numbers in batches:
                columns = {"value": pa.array([b"%d" % number for number in numbers])}
                if keyed:
                    columns["key"] = pa.array([f"k{number % 7}" for number in numbers])
                sender.send(pa.record_batch(columns), first=first)
                first += len(numbers)

    await asyncio.to_thread(run)


def encoded(proxy: ScriptedProxy) -> list[tuple[str | None, list[int]]]:
    """Return the queue of each request that was stored, and the values of its messages."""
    return [
        (each.qid, [int(entry.body) for entry in decode_batch(each.body)]) for each in proxy.encoded
    ]


async def test_rows_go_to_the_queues_of_their_keys() -> None:
    queues = [f"broker-a_{number}" for number in range(3)]
    async with ScriptedProxy() as proxy:
        proxy.script("writableQueues", names(*queues))
        await write(proxy, range(20), range(20, 40), lanes=2)
        assert all(each.token == "secret" for each in proxy.encoded)
        assert {each.route for each in proxy.encoded} == {route_number(queues)}
        # The proxy gives up before the client, which waits for 5 s.
        assert {each.timeoutMs for each in proxy.encoded} == {2500}
        assert all(each.count == len(decode_batch(each.body)) for each in proxy.encoded)
        found = {
            qid: [n for each, some in encoded(proxy) if each == qid for n in some] for qid in queues
        }
    for at, qid in enumerate(queues):
        expected = [n for n in range(40) if abs(key_hash(f"k{n % 7}")) % 3 == at]
        assert found[qid] == expected


async def test_rows_without_a_key_go_where_the_proxy_decides() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("writableQueues", names("broker-a_0"))
        await write(proxy, range(8), keyed=False, lanes=4)
        assert sorted(encoded(proxy)) == [(None, [n, n + 1]) for n in (0, 2, 4, 6)]
        assert {each.route for each in proxy.encoded} == {None}


async def test_a_request_is_repeated_and_stored_messages_are_not_sent_again() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("writableQueues", names("broker-a_0"))
        slow = answers(12, "no answer in time", 2)
        proxy.script("sendEncoded", hangs_up, slow, answers(70, "behind"), proxy.plainly)
        await write(proxy, range(5))
        requests = [decode_batch(each.argument.body) for each in proxy.of("sendEncoded")]
        assert [[int(entry.body) for entry in some] for some in requests] == [
            [0, 1, 2, 3, 4],
            [0, 1, 2, 3, 4],
            [2, 3, 4],
            [2, 3, 4],
        ]


async def test_a_task_gives_up_with_the_reason_and_the_id() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("writableQueues", names("broker-a_0"))
        proxy.script("sendEncoded", *[answers(12, "no answer in time")] * 50)
        why = r"answers no answer in time .* and 2 others"
        with pytest.raises(SendFailed, match=why) as failed:
            await write(proxy, range(3), patience_s=0.2)
    assert (failed.value.code, failed.value.outcome_unknown) == (12, True)
    assert len(failed.value.failures) == 3


async def test_a_proxy_of_an_earlier_version_gets_messages() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("writableQueues", names("broker-a_0", "broker-a_1"))
        proxy.script("sendEncoded", unknown, unknown)
        await write(proxy, range(20), range(20, 40))
        of_one_key = [int(each.body) for each in proxy.stored if each.key == "k3"]
        assert of_one_key == [3, 10, 17, 24, 31, 38]
        assert len(proxy.stored) == 40
        assert len(proxy.of("sendEncoded")) == 1
        assert len({each.properties[UNIQUE_ID] for each in proxy.stored}) == 40


async def test_a_proxy_that_names_no_queues_gets_messages() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("writableQueues", unknown)
        await write(proxy, range(20))
        assert (len(proxy.stored), proxy.encoded) == (20, [])


async def test_messages_of_a_queue_that_moved_are_sent_by_key_and_the_route_is_read_again() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("writableQueues", names("broker-a_0"), names("broker-b_0"))
        missing = answers(11, "topic orders has no queue broker-a_0", 1)
        proxy.script("sendEncoded", missing)
        await write(proxy, range(3), range(3, 6), range(6, 9))
        assert [int(each.body) for each in proxy.stored] == [1, 2]
        assert all(each.qid is None and each.hashId is not None for each in proxy.stored)
        # The second batch may have been on its way before the route was read.
        assert encoded(proxy)[-1] == ("broker-b_0", [6, 7, 8])


async def test_tasks_begin_at_different_proxies() -> None:
    """All of them at the first one would leave the others without work."""
    async with ScriptedProxy() as one, ScriptedProxy() as other:
        for proxy in (one, other):
            proxy.script("writableQueues", *[names("broker-a_0")] * 2)
        for task in range(4):
            await write(one, [task], others=[other], task=task)
        assert [some for _, some in encoded(one)] == [[0], [2]]
        assert [some for _, some in encoded(other)] == [[1], [3]]
        assert {request.method for request in other.requests} == {"writableQueues", "sendEncoded"}


async def test_a_proxy_that_did_not_answer_is_tried_last_by_the_next_task() -> None:
    async with ScriptedProxy() as gone, ScriptedProxy() as there:
        known = KnownFailures()
        gone.script("writableQueues", names("broker-a_0"))
        gone.script("sendEncoded", *[hangs_up] * 9)
        there.script("writableQueues", *[names("broker-a_0")] * 2)
        for _ in range(2):
            await write(gone, range(3), others=[there], failures=known)
            assert len(gone.of("sendEncoded")) == 1
        assert [some for _, some in encoded(there)] == [[0, 1, 2]] * 2


async def test_nothing_is_sent_once_the_task_has_ended() -> None:
    async with ScriptedProxy() as proxy:
        connecting = Connecting(servers=(proxy.address,))
        ended = EncodedProducer(connecting, Support(), patience_s=10.0)
        ended.close()
        origin, values = Origin("job", 0, "orders", None), {"value": pa.array([b"x"])}
        parts = list(
            Rows(origin, values, 0).encoded().parts(lambda _: ["broker-a_0"], most=1, lanes=1)
        )
        with pytest.raises(SendFailed, match="the task ended"):
            await asyncio.to_thread(ended.send_parts, parts)
        assert proxy.requests == []


@pytest.mark.parametrize("doubt", [False, True])
async def test_what_the_proxy_refuses_is_explained_as_for_other_sends(doubt: bool) -> None:
    """A refusal says nothing of an earlier request without an answer."""

    async def refuses(request: Request) -> producer.Result:
        return producer.Result(71, "the token may not send")

    async with ScriptedProxy() as proxy:
        proxy.script("writableQueues", names("broker-a_0"))
        earlier = [hangs_up] if doubt else []
        proxy.script("sendEncoded", *earlier, answers(71, "the token may not send"))
        proxy.script("sendBatchSync", refuses)
        with pytest.raises(SendFailed, match="the token may not send") as failed:
            await write(proxy, range(3))
    assert failed.value.code == 71
    assert failed.value.outcome_unknown is doubt
    assert ("an earlier request may have stored them" in str(failed.value)) is doubt
