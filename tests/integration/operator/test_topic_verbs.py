"""Verbs on topics, brokers and messages against a running gateway."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any
from unittest import mock

import orjson
import pytest

from broker_core.names import Topic
from broker_core.remoting.message import OutgoingMessage
from broker_core.remoting.route_bodies import Perm, QueueData
from broker_core.tasks import spawn
from proxy.cli import exports
from proxy.cli.connect import lines_of_proxy
from proxy.cli.messages import BodyForm, body_text
from proxy.cli.owner_requests import look
from proxy.errors import OrderlaneError
from proxy.operator import message_browser
from testkit.eventually import eventually
from testkit.gateway import GROUP, TOPIC
from tests.integration.operator.queue_site import WHY, Desk, Site, judged, site
from tests.support.consumers import consuming
from tests.support.verbs import orderlane


async def one(it: Site, *words: str) -> dict[str, Any]:
    """Return the JSON object that a verb prints."""
    code, out, err = await it.verb(*words, "-o", "json")
    assert code == 0, err
    return dict(orjson.loads(out))


# ---- topics and brokers --------------------------------------------------------------------------


async def test_a_topic_is_described_with_queues_brokers_and_groups(tmp_path: Path) -> None:
    desk = Desk()
    async with site(tmp_path, queues=2) as it:
        await it.send("a", "b", "a")
        async with consuming(it.gateway, it.at.thrift, "worker", handle=desk):
            await eventually(it.gateway.all_finished)
            await eventually(lambda: it.gateway.events("commit") != [], within_s=20)
        await it.start_another_proxy()
        await it.send("a")
        shown = await one(it, "topics", "describe", TOPIC)
        assert (shown["topic"], shown["queues"], shown["messages"]) == (TOPIC, 2, 4)
        assert sum(row["end"] - row["begin"] for row in shown["queue_list"]) == 4
        (broker,) = shown["broker_list"]
        assert (broker["perm"], broker["read_queues"]) == ("RW", 2)
        assert {"group": GROUP, "lag": 1} in shown["groups"]
        assert shown["complete"]
        _, out, _ = await it.verb("topics", "describe", TOPIC)
        assert out.split()[:4] == ["queue", "begin", "end", "messages"]
        assert "there is no topic 'none'" in await it.refused("topics", "describe", "none")


async def test_a_topic_gets_permissions_and_queues(tmp_path: Path) -> None:
    """Queues are never hidden, and what producers write can be read."""
    async with site(tmp_path, queues=2) as it:
        client, update = it.gateway.client, ("topics", "update", TOPIC)
        await it.send("a", "b")
        (row,) = await it.rows(*update, "--perm", "W", "--dry-run")
        assert (row["perm"], row["dry_run"]) == ("W", True)
        assert len(await client.queues(TOPIC, fresh=True)) == 2
        await it.rows(*update, "--perm", "W", *WHY)
        assert await client.queues(TOPIC, fresh=True) == []
        (row,) = await it.rows(*update, "--queues", "5", *WHY)
        assert (row["read_queues"], row["write_queues"], row["perm"]) == (5, 5, "W")
        await it.rows(*update, "--perm", "RW", "--broker", "broker-a", *WHY)
        assert len(await client.queues(TOPIC, fresh=True)) == 5
        shown = await one(it, "topics", "describe", TOPIC)
        assert (shown["queues"], shown["messages"]) == (5, 2)
        assert "give at least 5" in await it.refused(*update, "--queues", "4", *WHY)
        assert "nothing to change" in await it.refused(*update, *WHY)
        assert "perm should be RW, R or W" in await it.refused(*update, "--perm", "X", *WHY)
        assert "reason" in await it.refused(*update, "--perm", "RW")
        assert "brokers that have it: broker-a" in await it.refused(
            *update, "--perm", "R", "--broker", "b", *WHY
        )
        assert "there is no topic 'none'" in await it.refused(
            "topics", "update", "none", "--perm", "R", *WHY
        )


async def test_a_topic_with_fewer_queues_for_reading_gets_the_others(tmp_path: Path) -> None:
    async with site(tmp_path, queues=2) as it:
        shape = QueueData(broker="broker-a", read_queues=2, write_queues=6, perm=Perm.READ_WRITE)
        await it.gateway.client.define_topic(TOPIC, [shape])
        (row,) = await it.rows("topics", "update", TOPIC, "--perm", "RW", *WHY)
        assert (row["read_queues"], row["write_queues"]) == (6, 6)
        assert len(await it.gateway.client.queues(TOPIC, fresh=True)) == 6


async def test_a_topic_is_created_and_deleted(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        words = ("topics", "create", "fresh", "--queues", "3")
        (plan,) = await it.rows(*words, "--dry-run")
        assert plan["dry_run"]
        assert "fresh" not in await it.gateway.client.topics()
        await it.rows(*words, *WHY)
        assert len(await it.gateway.client.queues(Topic("fresh"))) == 3
        assert "topic 'fresh' exists, with 3" in await it.refused(*words, *WHY)
        assert "reason" in await it.refused("topics", "create", "other")
        assert "belongs to brokers and gateways" in await it.refused(
            "topics", "create", "%DLQ%x", *WHY
        )
        assert "perm should be RW, R or W" in await it.refused(
            "topics", "create", "other", "--perm", "X", *WHY
        )
        assert "no broker 'b' is registered" in await it.refused(
            "topics", "create", "other", "--broker", "b", *WHY
        )
        delete = ("topics", "delete", "fresh")
        assert "add --yes" in await it.refused(*delete, *WHY)
        (plan,) = await it.rows(*delete, "--dry-run")
        assert (plan["messages"], plan["dry_run"]) == (0, True)
        assert "fresh" in await it.gateway.client.topics()
        await it.rows(*delete, *WHY, "--yes")
        assert "fresh" not in await it.gateway.client.topics()
        assert "there is no topic" in await it.refused(*delete, *WHY, "--yes")
        assert [each["phase"] for each in it.audited("topics delete")][:1] == ["begin"]
        assert it.audited("topics create")[0]["after"]["queues"] == 3


async def test_topics_are_listed_page_by_page(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        for name in ("t-1", "t-2", "t-3"):
            await it.gateway.client.create_topic(Topic(name), queues=1)
        from proxy.cli.owner_requests import look  # as the console asks

        def page(**query: Any) -> Any:
            return look(it.at.http, "/api/topics", contains="t-", **query)

        first = await asyncio.to_thread(page, limit=2)
        assert [row["topic"] for row in first["topics"]] == ["t-1", "t-2"]
        second = await asyncio.to_thread(page, limit=2, after=first["next"])
        assert ([row["topic"] for row in second["topics"]], second["next"]) == (["t-3"], None)


async def test_brokers_are_listed(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        (row,) = await it.rows("brokers", "ls")
        assert (row["broker"], row["role"], row["version"]) == ("broker-a", "master", "orderlane")
        assert row["log_end"] >= row["log_begin"] >= 0
        assert 0 <= row["disk_used"] <= 1
        _, out, _ = await it.verb("brokers", "ls")
        assert " ok" in out


# ---- messages ------------------------------------------------------------------------------------


async def test_messages_are_listed_by_offset_time_key_and_text(tmp_path: Path) -> None:
    async with site(tmp_path, queues=2) as it:
        await it.send(*"abcabc")

        async def listed(*words: str) -> list[str]:
            rows = await it.rows("messages", "ls", TOPIC, *words)
            return [row["preview"] for row in rows]

        assert sorted(await listed()) == ["a:1", "a:4", "b:2", "b:5", "c:3", "c:6"]
        assert await listed("--key", "b") == ["b:2", "b:5"]
        assert await listed("--grep", "c:") == ["c:3", "c:6"]
        assert len(await listed("--limit", "1")) == 1
        assert await listed("--from-time", "2099-01-01T00:00:00Z") == []
        assert len(await listed("--from-time", "2001-01-01T00:00:00Z", "--limit", "5")) == 5
        (row,) = await it.rows("messages", "ls", TOPIC, "--key", "a", "--limit", "1")
        path = f"/api/topics/{TOPIC}/messages"
        for limit, complete in ((1, False), (64, True)):
            found = await asyncio.to_thread(look, it.at.http, path, key="a", limit=limit)
            assert found["complete"] is complete
        place = ("--queue", row["queue"], "--from-offset", str(row["offset"]))
        assert (await listed(*place))[0] == row["preview"] == "a:4"
        (by_id,) = await it.rows("messages", "ls", TOPIC, "--id", row["message_id"])
        assert by_id["message"] == row["message"]
        of_queue = ("--queue", row["queue"])
        assert await listed(*of_queue, "--limit", "2") == (await listed(*of_queue))[-2:]
        refused = it.refused
        assert "leave queue and contains out" in await refused(
            "messages", "ls", TOPIC, "--key", "a", *of_queue
        )
        assert "name the queue" in await refused("messages", "ls", TOPIC, "--from-offset", "1")
        assert "has no queue 'x_1'" in await refused("messages", "ls", TOPIC, "--queue", "x_1")
        assert "there is no topic 'none'" in await refused("messages", "ls", "none")
        assert "invalid --from-time" in await refused("messages", "ls", TOPIC, "--from-time", "x")


async def test_the_newest_messages_are_those_of_a_hot_queue(tmp_path: Path) -> None:
    """A share of each queue would show old messages of others instead."""
    async with site(tmp_path, queues=4) as it:
        await it.send(*"abcdefgh")
        await asyncio.sleep(1)
        await it.send(*["hot"] * 12)
        newest = [f"hot:{number}" for number in range(9, 21)]
        path = f"/api/topics/{TOPIC}/messages"
        for limit in (10, 15):
            page = await asyncio.to_thread(look, it.at.http, path, limit=limit)
            shown = [row["preview"] for row in page["messages"]]
            assert (shown[-12:], len(shown)) == (newest[-limit:], limit)
            assert (page["complete"], page["older"]) == (True, True)
            rows = await it.rows("messages", "ls", TOPIC, "--limit", str(limit))
            assert [row["preview"] for row in rows] == shown
        page = await asyncio.to_thread(look, it.at.http, path, limit=20)
        assert (len(page["messages"]), page["older"]) == (20, False)


async def test_pages_join_without_gap_or_repetition(tmp_path: Path) -> None:
    async with site(tmp_path, queues=4) as it:
        await it.send(*(f"k{number % 7}" for number in range(60)))

        def all_pages() -> list[str]:
            page = look(it.at.http, f"/api/topics/{TOPIC}/messages", limit=7, start="oldest")
            seen = [row["message"] for row in page["messages"]]
            while not page["complete"]:
                page = look(
                    it.at.http,
                    f"/api/topics/{TOPIC}/messages",
                    limit=7,
                    positions=page["positions"],
                )
                assert 0 < len(page["messages"]) <= 7
                seen += [row["message"] for row in page["messages"]]
            return seen

        seen = await asyncio.to_thread(all_pages)
        assert (len(seen), len(set(seen))) == (60, 60)
        code, out, err = await it.verb("messages", "export", TOPIC)
        exported = [orjson.loads(line) for line in out.splitlines()]
        assert (code, [row["message"] for row in exported]) == (0, seen)
        assert exported[0]["body"].startswith("k")
        assert err.strip() == f"60 messages of {TOPIC} exported"
        _, out, _ = await it.verb("messages", "export", TOPIC, "--count", "3", "--grep", "k1:")
        assert [orjson.loads(line)["keys"] for line in out.splitlines()] == ["k1"] * 3


async def test_an_export_shows_that_its_search_goes_on(tmp_path: Path) -> None:
    """Otherwise clients and the servers between give up a search for a rare text."""
    async with site(tmp_path, queues=8) as it:
        await it.send(*(f"k{number}" for number in range(60)), "rare")
        found: list[bytes] = []

        def read() -> None:
            path = f"/api/topics/{TOPIC}/messages/export?contains=rare"
            found.extend(lines_of_proxy(it.at.http, path))

        export = ("messages", "export", TOPIC, "--grep")
        with (
            mock.patch.object(message_browser, "MOST_READ", 1),
            mock.patch.object(exports, "REPORT_S", 0.0),
        ):
            await asyncio.to_thread(read)
            code, out, err = await it.verb(*export, "nothing")
        assert found.count(b"") > 1
        assert [orjson.loads(line)["keys"] for line in found if line] == ["rare"]
        assert (code, out) == (0, "")
        assert err.count("0 messages so far\n") > 1


async def test_new_messages_are_followed(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        await it.send("old")
        tail = spawn(it.verb("messages", "tail", TOPIC, "--count", "2"), name="tail")
        while not tail.done():
            await it.send("new")
            await asyncio.sleep(0.1)
        code, out, _ = await tail
        assert code == 0
        assert [line.split()[2] for line in out.splitlines()] == ["new", "new"]


async def test_a_message_is_shown_with_its_state_in_a_group(tmp_path: Path) -> None:
    desk = Desk("held", "bad")
    rules = {"visibility_timeout_s": 60.0, "max_deliveries": 1, "on_exhausted": "dead_letter"}
    async with site(tmp_path, topic=rules) as it:
        await it.send("held", "held", "free", "bad")

        async def state(offset: int, **more: str) -> dict[str, Any]:
            shown = await one(
                it, "messages", "show", TOPIC, f"broker-a_0@{offset}", "--group", GROUP
            )
            return dict(shown["state"])

        assert (await state(0))["state"] == "unknown", "no proxy owns the queue"
        async with consuming(it.gateway, it.at.thrift, "worker", handle=desk):
            await eventually(lambda: {*desk.seen} == {"held", "free", "bad"})
            leased = await state(0)
            assert (leased["state"], leased["client"], leased["key"]) == (
                *("leased", "worker"),
                "held",
            )
            assert (await state(1))["state"] == "waiting"
            await eventually_state(state, 2, "finished")
            _, out, _ = await it.verb("messages", "show", TOPIC, "broker-a_0@0", "--group", GROUP)
            assert "billing: client" in out
            assert out.rstrip().endswith("held:1")
            desk.let_go()
            await eventually(it.gateway.all_finished)
            await eventually_state(state, 0, "finished")
        assert "no message at" in await it.refused("messages", "show", TOPIC, "broker-a_0@99")
        assert "invalid location" in await it.refused("messages", "show", TOPIC, "x")
    judged(it.gateway)


async def test_a_message_without_the_order_key_has_its_state_too(tmp_path: Path) -> None:
    """Its chain is that of the queue, of which most messages are not in memory."""
    desk = Desk("held")
    rules = {"order_key": "$.id", "max_jobs_in_memory": 8, "max_jobs_per_key_in_memory": 1}
    async with site(tmp_path, topic={"visibility_timeout_s": 60.0, **rules}) as it:
        await it.send(*["held"] * 30)
        async with consuming(it.gateway, it.at.thrift, "worker", handle=desk):
            await eventually(lambda: [each.spilled for each in it.gateway.statistics()] > [20])
            shown = [
                await one(it, "messages", "show", TOPIC, f"broker-a_0@{n}", "--group", GROUP)
                for n in (1, 29)
            ]
            assert [each["state"]["state"] for each in shown] == ["waiting"] * 2
            desk.let_go()
            await eventually(it.gateway.all_finished)
    judged(it.gateway)


async def eventually_state(state: Any, offset: int, wanted: str) -> None:
    async with asyncio.timeout(20):
        while (await state(offset))["state"] != wanted:  # noqa: ASYNC110  # over HTTP
            await asyncio.sleep(0.05)


async def test_dead_letters_and_parked_messages_have_their_state(tmp_path: Path) -> None:
    class Fails:
        async def __call__(self, message: Any) -> None:
            raise ValueError("it is broken")

    for policy, wanted in (("dead_letter", "dead-lettered"), ("park", "parked")):
        rules = {"max_deliveries": 1, "on_exhausted": policy}
        async with site(tmp_path / policy, topic=rules) as it:
            await it.send("a")
            async with consuming(it.gateway, it.at.thrift, "worker", handle=Fails()):

                async def state(offset: int) -> dict[str, Any]:
                    place = f"broker-a_0@{offset}"
                    shown = await one(
                        it,
                        "messages",
                        "show",
                        TOPIC,
                        place,
                        "--group",
                        GROUP,
                    )
                    return dict(shown["state"])

                await eventually_state(state, 0, wanted)


async def test_a_message_is_sent_again(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        sent = OutgoingMessage(
            topic=it.gateway.topic, body=b"x\x00", key="k", tag="t", properties={"color": "red"}
        )
        await it.gateway.client.send(it.gateway.queue(0), sent)
        resend = ("messages", "resend", TOPIC, "broker-a_0@0", *WHY)
        assert "add --yes" in await it.refused(*resend)
        (plan,) = await it.rows(*resend, "--dry-run")
        assert (plan["to"], plan["sent"]) == ("broker-a_0", None)
        assert it.audited("messages resend") == []
        (done,) = await it.rows(*resend, "--yes")
        assert done["sent"] == "broker-a_0@1"
        first, second = [
            await one(it, "messages", "show", TOPIC, f"broker-a_0@{number}") for number in (0, 1)
        ]
        same = ("keys", "tag", "body")
        assert (
            [first[name] for name in same] == [second[name] for name in same] == ["k", "t", "x\0"]
        )
        assert second["properties"]["color"] == "red"
        assert first["message_id"] != second["message_id"]
        assert it.audited("messages resend")[0]["target"] == "broker-a_0@0"
        _, out, _ = await it.verb("messages", "show", TOPIC, "broker-a_0@0")
        assert "x\\x00" in out, "escaped"


# ---- forms of a body -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "form", "shown"),
    [
        (b'{"a": 1}', BodyForm.AUTO, '{\n  "a": 1\n}'),
        (b"12", BodyForm.AUTO, "12"),
        (b"{no", BodyForm.AUTO, "{no"),
        (b"\xffA", BodyForm.AUTO, "00000000  ff 41" + " " * 44 + ".A"),
        (b"\xff", BodyForm.TEXT, "\\xff"),
        (b"12", BodyForm.JSON, "12"),
        (b"", BodyForm.AUTO, ""),
    ],
)
def test_a_body_is_shown_in_a_form(body: bytes, form: BodyForm, shown: str) -> None:
    try:
        found = {"body": body.decode()}
    except UnicodeDecodeError:
        found = {"body_base64": base64.b64encode(body).decode()}
    assert body_text(found, form) == shown


def test_a_body_that_is_not_json_is_refused_as_json() -> None:
    with pytest.raises(OrderlaneError, match="is not JSON: use --body text or hex"):
        body_text({"message": "broker-a_0@1", "body": "{"}, BodyForm.JSON)


async def test_topics_still_lists_without_a_verb(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        nameserver = ("--nameserver", it.gateway.cluster.nameserver)
        for words in (("topics",), ("topics", "ls")):
            code, out, _ = await orderlane(*words, *nameserver, "-o", "json")
            assert (code, TOPIC in [row["topic"] for row in orjson.loads(out)]) == (0, True)
