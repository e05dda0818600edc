"""Sends of single messages by operators, over HTTP."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker_core.remoting.key_hash import queue_index
from proxy.cli.connect import ask_proxy
from proxy.errors import OrderlaneError
from testkit.gateway import TOPIC
from tests.integration.operator.queue_site import Site, site


async def send(it: Site, topic: str = TOPIC, **asked: Any) -> dict[str, Any]:
    body = orjson.dumps({"reason": "a test", **asked})
    path = f"/api/topics/{topic.replace('%', '%25')}/messages"
    answer = await asyncio.to_thread(ask_proxy, it.at.http, path, body=body, timeout_s=20)
    return dict(orjson.loads(answer))


async def test_a_message_is_stored_in_the_queue_of_its_key_after_a_dry_run(tmp_path: Path) -> None:
    async with site(tmp_path, queues=4) as it:
        asked = {"key": "a", "tag": "t", "properties": {"colour": "red"}, "body": "zwölf"}
        plan = await send(it, **asked, dry_run=True)
        queues = await it.gateway.client.queues(it.gateway.topic)
        assert await it.gateway.client.max_offset(queues[queue_index("a", 4)]) == 0
        done = await send(it, **asked)
        assert plan == {**done, "sent": None, "message_id": None, "dry_run": True}
        assert (done["to"], done["bytes"]) == (queues[queue_index("a", 4)].qid, 6)
        (row,) = await it.rows("messages", "ls", TOPIC, "--key", "a")
        assert (row["message"], row["tag"], row["preview"]) == (done["sent"], "t", "zwölf")
        assert row["message_id"] == done["message_id"]
        end = next(each for each in it.audited("messages send") if each["phase"] == "end")
        assert end["after"]["sent"] == done["sent"]


async def test_a_message_without_a_key_goes_where_its_dry_run_said(tmp_path: Path) -> None:
    async with site(tmp_path, queues=4) as it:
        raw = base64.b64encode(b"\xff\x00").decode()
        plan = await send(it, body_base64=raw, dry_run=True)
        done = await send(it, body_base64=raw)
        assert done["sent"] == f"{plan['to']}@0"


async def test_wrong_messages_are_refused_with_one_sentence(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"body": "x", "topic": "none"}, "there is no topic 'none'"),
            ({"body": "x", "topic": "%DLQ%billing"}, "belongs to brokers and gateways"),
            ({}, "give body or body_base64"),
            ({"body": "x", "body_base64": "eA=="}, "give body or body_base64"),
            ({"body_base64": "?"}, "body_base64 should be base64"),
            ({"body": "x", "properties": {"KEYS": "k"}}, "'KEYS' is reserved"),
            ({"body": "x", "properties": {"colour": ""}}, "neither may be empty"),
            ({"body": "x", "key": "k" * 256}, "key should be"),
        ]
        for asked, sentence in wrong:
            with pytest.raises(OrderlaneError, match=sentence):
                await send(it, **asked)
        assert it.audited("messages send") == []
