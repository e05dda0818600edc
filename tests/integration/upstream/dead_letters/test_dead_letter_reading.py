"""``orderlane dead-letters show`` and ``export``, by the real command."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any
from unittest import mock

import orjson

from broker_core.client import BrokerClient
from broker_core.errors import ConnectionLost
from broker_core.names import QueueName
from broker_core.remoting.message import OutgoingMessage
from proxy.cli.owner_requests import look
from proxy.operator import dead_letter_desk
from testkit.gateway import GROUP, Gateway
from tests.integration.operator.queue_site import Site, site

LETTERS = 8
NO_TEXT = b"\xff\x00\xfe"


async def die(gateway: Gateway) -> None:
    """Produce dead letters in two queues; the body of the last one is not text."""
    topic, broker = gateway.dead_letter_topic, gateway.cluster.broker_name
    await gateway.client.create_topic(topic, queues=2, broker=broker)
    for number in range(LETTERS):
        about = {
            "DLQ_ORIGIN_TOPIC": gateway.topic,
            "ORDERLANE_QUEUE": "broker-a_0",
            "ORDERLANE_OFFSET": str(number),
            "ORDERLANE_ATTEMPTS": "3",
            "ORDERLANE_REASON": "the customer is unknown",
            "region": "north",
        }
        body = b"body %d" % number if number < LETTERS - 1 else NO_TEXT
        message = OutgoingMessage(topic, body, key=f"k{number % 2}", tag="new", properties=about)
        await gateway.client.send_batch(QueueName(topic, broker, number % 2), [message])


async def exported(it: Site, *words: str) -> list[dict[str, Any]]:
    code, out, err = await it.verb("dead-letters", "export", GROUP, *words)
    assert code == 0, err
    return [orjson.loads(line) for line in out.splitlines()]


async def test_dead_letters_are_exported_with_all_that_they_hold(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        await die(it.gateway)
        with mock.patch.object(dead_letter_desk, "AT_ONCE", 3):
            found = await exported(it)
        assert [each["origin"] for each in found] == [
            f"broker-a_0@{number}" for number in (0, 2, 4, 6, 1, 3, 5, 7)
        ]
        first, last = found[0], found[-1]
        assert (first["dead_letter"], first["body"]) == ("broker-a_0@0", "body 0")
        assert (first["topic"], first["key"], first["tag"]) == (it.gateway.topic, "k0", "new")
        assert (first["attempts"], first["reason"]) == (3, "the customer is unknown")
        assert first["properties"]["region"] == "north"
        assert base64.b64decode(last["body_base64"]) == NO_TEXT
        assert "body" not in last
        of_a_key = await exported(it, "--key", "k1", "--count", "2", "--topic", it.gateway.topic)
        assert [each["dead_letter"] for each in of_a_key] == ["broker-a_1@0", "broker-a_1@1"]
        assert await exported(it, "--key", "none") == []
        await it.rows("dead-letters", "redrive", GROUP, "--reason", "fixed", "--yes")
        assert len(await exported(it, "--all")) == LETTERS

        for which in ("broker-a_1@3", last["message_id"]):
            (row,) = await it.rows("dead-letters", "show", GROUP, which)
            assert {name: row[name] for name in last} == last
        code, out, _ = await it.verb("dead-letters", "show", GROUP, "broker-a_0@0")
        assert code == 0
        fields = dict(line.split(maxsplit=1) for line in out.splitlines() if "property" not in line)
        assert fields["body"].strip() == "body 0"
        assert any(line.split() == ["property", "region", "north"] for line in out.splitlines())


async def test_dead_letters_are_selected_by_time_and_reason_page_by_page(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        await die(it.gateway)
        ls = ("dead-letters", "ls", GROUP)
        assert len(await it.rows(*ls, "--reason", "is unknown")) == LETTERS
        assert await it.rows(*ls, "--reason", "another") == []
        assert await it.rows(*ls, "--since", "2099-01-01T00:00:00Z") == []
        assert len(await it.rows(*ls, "--since", "2001-01-01T00:00:00Z")) == LETTERS
        assert "invalid --since" in await it.refused(*ls, "--since", "yesterday")
        assert len(await exported(it, "--reason", "unknown", "--count", "3")) == 3

        def all_pages() -> list[str]:
            path, seen, positions = f"/api/groups/{GROUP}/dead-letters", list[str](), None
            while True:
                page = look(it.at.http, path, limit=3, positions=positions)
                seen += [row["dead_letter"] for row in page["dead_letters"]]
                if page["complete"]:
                    return seen
                positions = page["positions"]

        seen = await asyncio.to_thread(all_pages)
        assert (len(seen), len(set(seen))) == (LETTERS, LETTERS)


async def test_a_redrive_asks_first(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        await die(it.gateway)
        redrive = ("dead-letters", "redrive", GROUP, "--reason", "fixed")
        assert (await it.refused(*redrive)).endswith("with --dry-run, then add --yes")
        (row,) = await it.rows(*redrive, "--dry-run")
        assert (row["left"], row["skipped"]) == (LETTERS, 0)
        gone = ("--skip", "broker-a_0@99")
        skip = ("--skip", "broker-a_0@1", "--skip", "broker-a_1@0", "--skip", "broker-a_0@1")
        (row,) = await it.rows(*redrive, "--dry-run", *skip, *gone)
        assert (row["left"], row["skipped"]) == (LETTERS - 2, 2)


async def test_missing_dead_letters_are_reported_in_a_sentence(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        none = (
            f"answers 404: group '{GROUP}' has no dead letters: topic %DLQ%{GROUP} does not exist"
        )
        assert await it.rows("dead-letters", "ls", GROUP) == []
        unknown = "dead letters of it: topic %DLQ%other does not exist"
        assert (await it.refused("dead-letters", "export", "other")).endswith(unknown)
        assert (await it.refused("dead-letters", "show", GROUP, "broker-a_0@0")).endswith(none)
        await die(it.gateway)
        wrong = {
            "broker-a_0@4": f"group '{GROUP}' has no dead letter broker-a_0@4: broker-a_0 has 0"
            " to 3",
            "broker-b_0@1": "'broker-b_0@1' is not a dead letter: write a queue"
            " (broker-a_0, broker-a_1), '@' and an offset",
            "ABC": f"group '{GROUP}' has no dead letter 'ABC'",
        }
        for which, sentence in wrong.items():
            said = await it.refused("dead-letters", "show", GROUP, which)
            assert said.endswith(f"answers 404: {sentence}"), said
        said = await it.refused("dead-letters", "export", GROUP, "--count", "0")
        assert "Invalid value for '--count'" in said


async def test_an_interrupted_export_fails(tmp_path: Path) -> None:
    """After a failed second pull the output has whole lines only, and the exit code is 2."""
    async with site(tmp_path) as it:
        await die(it.gateway)
        pull, asked = BrokerClient.pull, 0

        async def failing(*arguments: Any, **named: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked > 1:
                raise ConnectionLost("the broker is gone")
            return await pull(*arguments, **named)

        with (
            mock.patch.object(dead_letter_desk, "AT_ONCE", 3),
            mock.patch.object(BrokerClient, "pull", failing),
        ):
            code, out, err = await it.verb("dead-letters", "export", GROUP)
        assert code == 2
        assert [orjson.loads(line)["body"] for line in out.splitlines()] == [
            *("body 0", "body 2", "body 4")
        ]
        assert "is incomplete" in err
        assert err.count("\n") == 1
