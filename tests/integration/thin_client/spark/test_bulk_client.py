"""The bulk client against scripted proxies."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from pathlib import Path

import pytest

from testkit.certificates import make_certificates
from testkit.scripted_proxy import Request, ScriptedProxy
from tests.integration.thin_client.spark.bulk_site import (
    QID,
    TOPIC,
    answers,
    client_of,
    hangs_up,
    has,
    stored,
)
from thin_client.errors import ClientError, ConnectionLost, ProtocolError, Refused
from thin_client.servers import Tls
from thin_client.spark import bulk_client
from thin_client.spark.bulk_client import BulkClient, Counts, DataLost
from thin_client.spark.offsets import QueueState, Slice
from thin_client.spark.server_order import KnownFailures
from thrift_idl import consumer


async def refuses(request: Request) -> object:
    raise consumer.PullException(code=404, message="there is no group 'g' here")


async def read(client: BulkClient, part: Slice, batch_bytes: int = 1 << 20) -> list[bytes]:
    def reading() -> list[bytes]:
        return list(client.records(part, batch_bytes=batch_bytes))

    try:
        return await asyncio.to_thread(reading)
    finally:
        client.close()


async def test_a_slice_is_read_to_its_end_in_chunks() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(7, 5, 6), answers(9, 7, 8))
        chunks = await read(client_of(proxy), Slice(TOPIC, QID, 5, 9))
    assert chunks == [stored(5, 6), stored(7, 8)]
    first, second = (request.argument for request in proxy.of("fetch"))
    assert (first.fetchOffset, second.fetchOffset) == ({TOPIC: {QID: 5}}, {TOPIC: {QID: 7}})
    assert (first.groupId, first.consumerId, first.format, first.token) == (
        *("g", "spark", 1),
        "secret",
    )


async def test_a_chunk_asks_for_as_many_messages_as_fit_and_are_wanted() -> None:
    size = len(stored(0))
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(4, 0, 1, 2, 3), answers(100, 4))
        await read(client_of(proxy), Slice(TOPIC, QID, 0, 100), batch_bytes=10 * size)
        proxy.script("fetch", answers(3, 0, 1, 2))
        await read(client_of(proxy), Slice(TOPIC, QID, 0, 3), batch_bytes=1 << 30)
    wanted = [request.argument.maxBatchSize for request in proxy.of("fetch")]
    assert wanted[1:] == [10, 3]


@pytest.mark.parametrize(("timeout_s", "linger_ms"), [(10.0, 2000), (0.5, 250)])
async def test_a_proxy_answers_before_the_request_times_out(
    timeout_s: float, linger_ms: int
) -> None:
    """Else no request would be answered by a proxy that lets bulk readers wait."""
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(1, 0))
        await read(client_of(proxy, timeout_s=timeout_s), Slice(TOPIC, QID, 0, 1))
    assert [each.argument.maxLingerTime for each in proxy.of("fetch")] == [linger_ms]


async def test_a_queue_without_offsets_to_read_is_not_asked() -> None:
    async with ScriptedProxy() as proxy:
        assert await read(client_of(proxy), Slice(TOPIC, QID, 5, 5)) == []
    assert proxy.requests == []


async def test_records_of_another_life_of_the_topic_are_no_records_of_the_slice() -> None:
    async with ScriptedProxy() as proxy:
        client = client_of(proxy)
        proxy.script("fetch", answers(7, 5, 6, life=3), answers(9, 7, 8, life=4))
        reading = client.records(Slice(TOPIC, QID, 5, 9, 3), batch_bytes=1 << 20)
        assert await asyncio.to_thread(next, reading) == stored(5, 6)
        with pytest.raises(DataLost, match=r"offsets 7 to 8 .* created again since") as lost:
            await asyncio.to_thread(next, reading)
        assert lost.value.first_there == 9
        client.close()


@pytest.mark.parametrize(("asked", "told"), [(None, 3), (3, None), (None, None), (3, 3)])
async def test_without_known_lives_all_records_are_returned(
    asked: int | None, told: int | None
) -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(1, 0, life=told))
        assert await read(client_of(proxy), Slice(TOPIC, QID, 0, 1, asked)) == [stored(0)]


async def test_a_lost_answer_is_asked_for_again() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", hangs_up, answers(1, 0))
        assert await read(client_of(proxy), Slice(TOPIC, QID, 0, 1)) == [stored(0)]
    assert len(proxy.of("fetch")) == 2


async def test_where_a_proxy_stays_away_the_next_one_is_asked() -> None:
    async with ScriptedProxy() as gone, ScriptedProxy() as there:
        client = client_of(gone, there)
        gone.script("fetch", answers(1, 0), hangs_up, hangs_up)
        there.script("fetch", answers(2, 1))
        assert await read(client, Slice(TOPIC, QID, 0, 2)) == [stored(0), stored(1)]
    assert len(there.of("fetch")) == 1


async def test_what_one_client_learns_of_the_proxies_spares_the_next_one() -> None:
    async with ScriptedProxy() as gone, ScriptedProxy() as there:
        known = KnownFailures()
        gone.script("ranges", *(hangs_up for _ in range(9)))
        for asked in (2, 2):
            there.script("ranges", has(0, 1))
            client = client_of(gone, there, failures=known)
            assert await asyncio.to_thread(client.ranges, [TOPIC])
            client.close()
            assert len(gone.of("ranges")) == asked
    assert len(there.of("ranges")) == 2


async def test_a_proxy_that_comes_back_on_its_port_is_used_again() -> None:
    async with ScriptedProxy() as first:
        client = client_of(first)
        first.script("ranges", has(0, 3))
        assert await asyncio.to_thread(client.ranges, [TOPIC]) == [QueueState(TOPIC, QID, 0, 3)]
    asked = asyncio.create_task(asyncio.to_thread(client.ranges, [TOPIC]))  # noqa: TID251
    await asyncio.sleep(0.2)
    async with ScriptedProxy(port=int(first.address.rpartition(":")[2])) as second:
        second.script("ranges", has(0, 4))
        assert await asked == [QueueState(TOPIC, QID, 0, 4)]
    client.close()


async def test_patience_has_an_end() -> None:
    async with ScriptedProxy() as proxy:
        client = client_of(proxy, patience_s=0.3)
    with pytest.raises(ConnectionLost, match="no connection to 127"):
        await asyncio.to_thread(client.ranges, [TOPIC])


async def test_a_refusal_is_final() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("ranges", refuses)
        client = client_of(proxy)
        with pytest.raises(Refused, match="there is no group 'g' here"):
            await asyncio.to_thread(client.ranges, [TOPIC])
        client.close()
    assert len(proxy.requests) == 1


@pytest.mark.parametrize(("code", "why"), [(401, "set the option token"), (403, "no permission")])
async def test_a_missing_token_or_right_is_named(code: int, why: str) -> None:
    async def refused(request: Request) -> consumer.FetchResponse:
        return consumer.FetchResponse(code=code, results=[])

    async with ScriptedProxy() as proxy:
        proxy.script("fetch", refused)
        with pytest.raises(Refused, match=why):
            await read(client_of(proxy), Slice(TOPIC, QID, 0, 1))


# ---- missing data -------------------------------------------------------------------------------


async def lost(proxy: ScriptedProxy, part: Slice, *, patience_s: float = 10.0) -> DataLost:
    with pytest.raises(DataLost) as caught:
        await read(client_of(proxy, patience_s=patience_s), part)
    return caught.value


async def test_offsets_that_are_jumped_over_are_lost() -> None:
    """At the first record of an answer, and in an answer without records but a later offset."""
    for answer in (answers(9, 7, 8), answers(7)):
        async with ScriptedProxy() as proxy:
            proxy.script("fetch", answers(3, 2), answer)
            proxy.script("ranges", has(7, 20))
            error = await lost(proxy, Slice(TOPIC, QID, 2, 10))
        assert (error.part, error.first_there) == (Slice(TOPIC, QID, 3, 10), 7)
        assert str(error).startswith(
            "offsets 3 to 6 of queue broker-a_0 of topic 'orders' are lost"
        )
        assert "the oldest message is at 7" in str(error)


async def test_offsets_that_a_broker_says_it_has_and_does_not_give_are_lost_too() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(7))
        proxy.script("ranges", has(0, 20))
        error = await lost(proxy, Slice(TOPIC, QID, 3, 10))
    assert error.first_there == 7
    assert "skips them, although its oldest message is at 0" in str(error)


async def test_a_loss_beyond_the_slice_ends_with_it() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(70))
        proxy.script("ranges", has(70, 80))
        error = await lost(proxy, Slice(TOPIC, QID, 2, 10))
    assert (error.part, error.first_there) == (Slice(TOPIC, QID, 2, 10), 10)


async def test_a_queue_that_ends_before_its_slice_was_created_again() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(2))
        proxy.script("ranges", has(0, 1), has(0, 1))
        error = await lost(proxy, Slice(TOPIC, QID, 2, 10))
    assert error.first_there == 10
    assert "the queue ends at 1" in str(error)


async def has_topic(_request: Request) -> list[str]:
    return [TOPIC]


async def test_a_queue_that_is_gone_has_lost_all() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(2))
        proxy.script("ranges", has(0, 9, qid="broker-a_1"), has(0, 9, qid="broker-a_1"))
        proxy.script("topics", has_topic)
        error = await lost(proxy, Slice(TOPIC, QID, 2, 10), patience_s=0)
    assert error.first_there == 10
    assert "no longer exists" in str(error)


async def test_a_queue_whose_broker_restarts_is_awaited() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(2), answers(2), answers(3, 2))
        proxy.script("ranges", has(0, 9, qid="broker-a_1"), refuses)
        assert await read(client_of(proxy), Slice(TOPIC, QID, 2, 3)) == [stored(2)]


async def test_an_empty_answer_is_no_loss_while_the_queue_goes_on() -> None:
    """A proxy that throttles bulk reads, or whose broker is down for a moment, sends no records."""
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(2), answers(2), answers(3, 2))
        proxy.script("ranges", has(0, 9), has(0, 9))
        assert await read(client_of(proxy), Slice(TOPIC, QID, 2, 3)) == [stored(2)]


async def test_a_queue_that_gives_nothing_for_long_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_client, "STALL_S", 0.2)
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", *[answers(2)] * 50)
        proxy.script("ranges", *[has(0, 9)] * 50)
        with pytest.raises(Refused, match="sent no records of orders/broker-a_0 from offset 2"):
            await read(client_of(proxy, patience_s=0.2), Slice(TOPIC, QID, 2, 3))


async def test_records_that_lead_nowhere_are_an_error() -> None:
    async with ScriptedProxy() as proxy:
        proxy.script("fetch", answers(2, 2))
        with pytest.raises(ProtocolError, match="2 as the next offset"):
            await read(client_of(proxy), Slice(TOPIC, QID, 2, 3))


def test_what_was_lost_travels_between_processes() -> None:
    error = DataLost(Slice(TOPIC, QID, 2, 10), 7, "why")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.part, copy.first_there, str(copy)) == (error.part, 7, str(error))


# ---- ranges and acks ----------------------------------------------------------------------------


async def test_ranges_return_all_states_of_the_proxy() -> None:
    async def answer(request: Request) -> list[consumer.QueueRange]:
        return [
            consumer.QueueRange(TOPIC, "broker-a_1", 1, 9, offsetAtTimestamp=4),
            consumer.QueueRange(TOPIC, "broker-a_0", 0, 5, committedOffset=3, offsetAtTimestamp=5),
        ]

    async with ScriptedProxy() as proxy:
        proxy.script("ranges", answer)
        client = client_of(proxy)
        found = await asyncio.to_thread(client.ranges, [TOPIC], 1_700_000_000_000)
        client.close()
    assert found == [
        QueueState(TOPIC, "broker-a_0", 0, 5, 5),
        QueueState(TOPIC, "broker-a_1", 1, 9, 4),
    ]
    request = proxy.of("ranges")[0].argument
    assert (request.groupId, request.topics, request.timestampMs, request.token) == (
        *("g", [TOPIC], 1_700_000_000_000),
        "secret",
    )


async def test_the_topics_of_a_group_are_sorted() -> None:
    async def answer(request: Request) -> list[str]:
        return ["b", "a"]

    async with ScriptedProxy() as proxy:
        proxy.script("topics", answer)
        client = client_of(proxy)
        assert await asyncio.to_thread(client.topics) == ["a", "b"]
        client.close()
    assert (proxy.requests[0].argument.groupId, proxy.requests[0].argument.token) == ("g", "secret")


async def test_more_topics_than_a_request_may_name_are_asked_for_in_parts() -> None:
    async def answer(request: Request) -> list[consumer.QueueRange]:
        return [consumer.QueueRange(each, QID, 0, 1) for each in request.argument.topics]

    topics = [f"t-{number:04d}" for number in range(1001)]
    async with ScriptedProxy() as proxy:
        proxy.script("ranges", answer, answer)
        client = client_of(proxy)
        found = await asyncio.to_thread(client.ranges, topics)
        client.close()
    assert [each.topic for each in found] == topics
    assert [len(each.argument.topics) for each in proxy.of("ranges")] == [1000, 1]


@pytest.mark.parametrize("refusal", [None, "the reader 'other' reported progress"])
async def test_a_report_says_why_it_was_not_taken(refusal: str | None) -> None:
    async def answer(request: Request) -> consumer.ReportAnswer:
        return consumer.ReportAnswer(refusal=refusal)

    counts = Counts(lost=Counter({TOPIC: 2}), repeated=Counter({TOPIC: 5}))
    async with ScriptedProxy() as proxy:
        proxy.script("report", answer)
        client = client_of(proxy)
        assert await asyncio.to_thread(client.report, {TOPIC: {QID: 7}}, counts) == refusal
        client.close()
    request = proxy.of("report")[0].argument
    assert (request.consumerId, request.offsets) == ("spark", {TOPIC: {QID: 7}})
    assert (request.lost, request.skipped, request.repeated) == ({TOPIC: 2}, {}, {TOPIC: 5})


async def test_a_report_gives_up_sooner_than_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_client, "REPORT_PATIENCE_S", 0.1)
    async with ScriptedProxy() as proxy:
        client = client_of(proxy, patience_s=600)
    with pytest.raises(ClientError):
        await asyncio.to_thread(client.report, {TOPIC: {QID: 7}})


def test_tls_travels_between_processes_after_it_was_used(tmp_path: Path) -> None:
    """Spark pickles a reader that has already requested offsets."""
    tls = Tls(ca=str(make_certificates(tmp_path).ca))
    assert tls.context is not None
    copy = pickle.loads(pickle.dumps(tls))
    assert copy == tls
    assert copy.context is not tls.context
