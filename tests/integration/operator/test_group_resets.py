"""Reset of a whole group over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.cli.connect import ask_proxy
from proxy.errors import OrderlaneError, OwnedElsewhere
from testkit.eventually import eventually
from testkit.gateway import GROUP, TOPIC
from tests.integration.operator.queue_site import Desk, Site, judged, site
from tests.support.consumers import consuming


async def reset(it: Site, http: str | None = None, **asked: Any) -> dict[str, Any]:
    body = orjson.dumps({"reason": "a test", **asked})
    path = f"/api/groups/{GROUP}/offsets/reset"
    answer = await asyncio.to_thread(ask_proxy, http or it.at.http, path, body=body, timeout_s=20)
    return dict(orjson.loads(answer))


async def test_all_queues_are_reset_after_a_dry_run(tmp_path: Path) -> None:
    desk = Desk()
    async with site(tmp_path, queues=4) as it:
        await it.send(*"abcdefgh")
        async with consuming(it.gateway, it.at.thrift, "worker", handle=desk):
            await eventually(it.gateway.all_finished)
            plan = await reset(it, to={"begin": True}, dry_run=True)
            assert (len(plan["queues"]), plan["elsewhere"], plan["owners"]) == (4, 0, [])
            assert sum(row["repeated"] for row in plan["queues"]) == 8
            assert it.audited("offsets reset") == []
            done = await reset(it, to={"begin": True}, topic=TOPIC)
            assert [row["to"] for row in done["queues"]] == [0, 0, 0, 0]
            await eventually(lambda: sum(map(len, desk.seen.values())) == 16)
            assert len(it.audited("offsets reset")) == 4
    judged(it.gateway)


async def test_queues_without_an_owner_are_reset_to_a_time_or_the_end(tmp_path: Path) -> None:
    async with site(tmp_path, queues=2) as it:
        await it.send(*"abcd")
        for to, skipped in (({"time_ms": 1}, 0), ({"end": True}, 4)):
            plan = await reset(it, to=to, dry_run=True)
            assert sum(row["skipped"] for row in plan["queues"]) == skipped
        await reset(it, to={"end": True})
        shown = await it.rows("offsets", "show", GROUP)
        assert [row["lag"] for row in shown] == [0, 0]


async def test_queues_of_other_proxies_are_named_and_left_alone(tmp_path: Path) -> None:
    desk = Desk()
    async with site(tmp_path, queues=2) as it:
        _, there = await it.gateway.start_proxy()
        async with consuming(it.gateway, there.thrift, "worker", handle=desk):
            await it.send(*"ab")
            await eventually(it.gateway.all_finished)
            with pytest.raises(OwnedElsewhere, match="other proxies own all queues") as refused:
                await reset(it, to={"begin": True})
            assert refused.value.addresses == (there.http,)
        assert it.audited("offsets reset") == []


async def test_invalid_resets_are_refused(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        for asked, sentence in (
            ({"to": {"offset": 1}}, "to should be one of"),
            ({"to": {"end": False}}, "to should be one of"),
            ({"to": {"end": True}, "topic": "none"}, "has no topic 'none'"),
        ):
            with pytest.raises(OrderlaneError, match=sentence):
                await reset(it, **asked)
