"""``orderlane groups pause`` and ``resume`` run over two proxies."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import orjson
import pytest

from proxy.cli import connect
from proxy.errors import OrderlaneError, OwnedElsewhere
from testkit.eventually import eventually
from testkit.gateway import GROUP
from tests.integration.operator.queue_site import Desk, judged, site
from tests.support.consumers import consuming
from tests.support.verbs import orderlane

WHY = ("--reason", "the bank is closed")
#: Long enough that no queue moves when the machine stalls for seconds.
PATIENT = {"renewal_s": 0.5, "trust_s": 9.0, "request_timeout_s": 5.0}


async def test_a_paused_group_is_paused_at_all_proxies_and_after_a_hand_over(
    tmp_path: Path,
) -> None:
    """No message is delivered after the command has ended, at any owner."""
    desk = Desk()
    async with site(tmp_path, queues=4, lock=PATIENT) as it:
        other, there = await it.gateway.start_proxy()
        async with (
            consuming(it.gateway, it.at.thrift, "one", handle=desk),
            consuming(it.gateway, there.thrift, "two", handle=desk),
        ):
            await eventually(
                lambda: (
                    [sum(map(len, (x.statistics() for x in p.lanes))) for p in (it.proxy, other)]
                    == [2, 2]
                    and len({each.queue for each in it.gateway.statistics()}) == 4
                    and not any(each.draining for each in it.gateway.statistics())
                ),
                within_s=60,
            )
            rows = await it.rows("groups", "pause", GROUP, *WHY)
            assert {row["proxy"] for row in rows} == {it.at.http, there.http}
            assert len({row["queue"] for row in rows}) == 4
            assert all(row["paused"] for row in rows)
            await it.send(*"abcdabcd")
            await eventually(lambda: sum(each.unfinished for each in it.gateway.statistics()) == 8)
            (listed,) = await it.rows("groups", "ls")
            assert (listed["paused_queues"], listed["ready"]) == (2, 0)
            code, out, _ = await it.verb("doctor", "--nameserver", it.gateway.cluster.nameserver)
            assert f"{GROUP}: group {GROUP} is paused by " in out
            assert "(the bank is closed): none of its 8 messages is delivered" in out
            assert code == 1, out
            _, _, said = await it.verb("lag", GROUP, "--nameserver", it.gateway.cluster.nameserver)
            assert said.startswith(f"group {GROUP}: paused by ")
            await it.rows("owners", "drain", there.http, *WHY)
            await eventually(
                lambda: (
                    len(it.gateway.statistics()) == 4
                    and all(each.paused_whole for each in it.gateway.statistics())
                ),
                within_s=60,
            )
            assert not desk.seen
            rows = await it.rows("groups", "resume", GROUP, *WHY)
            assert {(row["proxy"], row["paused"]) for row in rows} == {(it.at.http, False)}
            await eventually(it.gateway.all_finished, within_s=60)
        assert desk.seen == {"a": [1, 5], "b": [2, 6], "c": [3, 7], "d": [4, 8]}
        assert [each["reason"] for each in it.audited("group pause")] == [WHY[1]] * 2
    judged(it.gateway)


async def test_an_owner_without_an_address_is_named_and_other_owners_are_paused(
    tmp_path: Path,
) -> None:
    desk = Desk()
    async with site(tmp_path, queues=2, lock=PATIENT) as it:
        other, there = await it.gateway.start_proxy()
        other.context.serve_http("")  # as in the records of an old version
        async with (
            consuming(it.gateway, it.at.thrift, "one", handle=desk),
            consuming(it.gateway, there.thrift, "two", handle=desk),
        ):
            await eventually(
                lambda: (
                    [sum(map(len, (x.statistics() for x in p.lanes))) for p in (it.proxy, other)]
                    == [1, 1]
                ),
                within_s=60,
            )
            (hidden,) = (each.queue for lane in other.lanes for each in lane.statistics())
            code, out, err = await it.verb("groups", "pause", GROUP, *WHY)
            assert (code, len(out.splitlines())) == (2, 2)
            assert err.startswith(
                f"orderlane: not done in orders/{hidden.qid}: the owner publishes no HTTP address; "
            )
            assert err.count("\n") == 1
            rows = await it.rows("groups", "pause", GROUP, *WHY, http=there.http)
            assert len(rows) == 2


async def test_an_invalid_pause_is_one_sentence(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        for verb in ("pause", "resume"):
            assert await it.refused("groups", verb, GROUP) == (
                "a reason is required for the audit topic: add --reason"
            )
            assert (await it.refused("groups", verb, "other", *WHY)).endswith(
                "answers 404: this proxy has no group 'other'"
            )
        await it.rows("owners", "drain", it.at.http, *WHY)
        for verb in ("pause", "resume"):
            assert (await it.refused("groups", verb, GROUP, *WHY)).endswith(
                f"answers 409: this proxy owns no queue of orders for '{GROUP}', and no other proxy"
                f" does; it takes none over, because it is drained: {WHY[1]}"
            )
        code, _, err = await orderlane("groups", "stop", GROUP)
        assert (code, err.count("\n")) == (2, 1)
        assert it.audited("group pause") == []


async def test_a_broadcast_group_is_paused_by_client(tmp_path: Path) -> None:
    """It has no queues of its own, so no repetition would pause it."""
    async with site(tmp_path) as it:
        it.gateway.settings["groups"][0]["mode"] = "broadcast"
        await it.start_another_proxy()
        sentence = (
            f"answers 409: group '{GROUP}' is a broadcast group, whose clients have their own"
            f" pauses and parked keys: name the group of a client, '{GROUP}%CLIENT'"
        )
        for words in (
            ("groups", "pause", GROUP),
            ("key", "pause", GROUP, "k"),
            ("key", "redrive", GROUP, "--all", "--yes"),
        ):
            assert (await it.refused(*words, *WHY)).endswith(sentence)


async def test_queues_that_are_not_paused_are_named() -> None:
    """The others are paused, and the exit code reports the failure."""
    answers = {
        "one:1": {
            "queues": ["orders/a_0"],
            "owners": ["two:1", "gone:1"],
            "unowned": ["orders/a_2"],
            "unaddressed": ["orders/a_1", "orders/a_3"],
        },
        "two:1": {
            "queues": ["orders/a_1"],
            "owners": ["one:1", "gone:1"],
            "unowned": ["orders/a_2"],
            "unaddressed": ["orders/a_3"],
        },
    }

    def ask(http: str, path: str, **_: Any) -> bytes:
        if path == "/api/process":
            return b"{}"
        assert path == "/api/groups/billing/pause"
        if http not in answers:
            raise OrderlaneError(f"no proxy answers at {http}")
        return orjson.dumps({"group": "billing", "key": None, "paused": True, **answers[http]})

    with mock.patch.object(connect, "ask_proxy", ask):
        code, out, err = await orderlane("groups", "pause", "billing", "--http", "one:1", *WHY)
    assert code == 2
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["billing", "orders/a_0", "True", "one:1"],
        ["billing", "orders/a_1", "True", "two:1"],
    ]
    assert [each.removeprefix("orderlane: ") for each in err.splitlines()] == [
        "no proxy answers at gone:1",
        "not done in orders/a_2: no owner, and no take-over in time; retry in a moment",
        "not done in orders/a_3: the owner publishes no HTTP address; find it with orderlane owners"
        " ls and pass it to --http",
    ]


@pytest.mark.parametrize("verb", ["pause", "redrive"])
async def test_a_queue_whose_owner_changes_between_the_requests_is_named(verb: str) -> None:
    """Its new owner was asked before it came, its former one after it had left."""
    place, gone = "/api/groups/billing/topics/orders/keys", "this proxy owns no queue"
    done = ["orders/a_0"] if verb == "pause" else [{"queue": "a_0", "keys": ["k"], "copies": 1}]
    answer = {
        "group": "billing",
        "topic": "orders",
        "key": "k",
        "paused": True,
        "queues": done,
        "owners": ["two:1"],
        "elsewhere": ["orders/a_1"],
        "unowned": [],
        "unaddressed": [],
    }

    def ask(http: str, path: str, **_: Any) -> bytes:
        if path == "/api/process":
            return b"{}"
        assert path.removeprefix(f"{place}/") in ("pause", "redrive-all")
        if http == "two:1":
            raise OwnedElsewhere(gone, addresses=("one:1",))
        return orjson.dumps(answer)

    words = [verb, "billing", *(["k"] if verb == "pause" else ["--all", "--yes"])]
    with mock.patch.object(connect, "ask_proxy", ask):
        ended = await orderlane("key", *words, "--topic", "orders", "--http", "one:1", *WHY)
    code, out, err = ended
    assert (code, "a_0" in out, "a_1" in out) == (2, True, False)
    assert err == (
        "orderlane: not done in orders/a_1: the owner did not do it, or another one came meanwhile;"
        " repeat the command\n"
    )


async def test_a_redrive_of_all_keys_names_queues_that_it_leaves_out(tmp_path: Path) -> None:
    """Another proxy owns them without an address, or no proxy owns them."""
    desk = Desk()
    async with site(tmp_path, queues=2, lock=PATIENT) as it:
        other, there = await it.gateway.start_proxy()
        other.context.serve_http("")
        async with (
            consuming(it.gateway, it.at.thrift, "one", handle=desk),
            consuming(it.gateway, there.thrift, "two", handle=desk),
        ):
            await eventually(
                lambda: (
                    [sum(map(len, (x.statistics() for x in p.lanes))) for p in (it.proxy, other)]
                    == [1, 1]
                ),
                within_s=60,
            )
            (hidden,) = (each.queue for lane in other.lanes for each in lane.statistics())
            words = ("key", "redrive", GROUP, "--all", "--topic", "orders", "--yes", *WHY)
            code, _, err = await it.verb(*words)
            assert (code, err.count("\n")) == (2, 1)
            assert err.startswith(
                f"orderlane: not done in orders/{hidden.qid}: the owner publishes no HTTP address; "
            )
            (ours,) = (each.queue for lane in it.proxy.lanes for each in lane.statistics())
            assert (await it.verb(*words, "--queue", ours.qid))[0] == 0
