"""``make test-api``: schemathesis checks a running gateway against its OpenAPI document.

The gateway has a group whose queues hold messages, including leased and retried ones, a parked key
and dead letters; a client works meanwhile. Afterwards it still has to serve, and its log has to be
without a bug. Prints the output of schemathesis and returns its exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import structlog

from broker_core.names import Topic
from broker_core.remoting.message import OutgoingMessage
from broker_core.tasks import cancel_and_wait, spawn
from proxy.app import Proxy
from testkit.eventually import eventually
from testkit.gateway import Gateway, run_gateway
from tests.support.consumers import consuming
from thin_client import Message

_FOLDER = Path(__file__).parent
_OTHER, _SPARE = Topic("letters"), Topic("spare")
_SEED = "7"
_BROKEN = ("parked", "dead-0", "dead-1", "dead-2")


async def _main(arguments: list[str]) -> int:
    logging.getLogger("orderlane").setLevel(logging.CRITICAL)  # handlers fail on purpose
    with tempfile.TemporaryDirectory() as folder, structlog.testing.capture_logs() as logs:
        async with _gateway(Path(folder)) as (gateway, http):
            code = await _schemathesis(gateway, http, arguments)
            await _still_serves(http)
    bugs = [line for line in logs if line.get("exc_info")]
    for line in bugs:
        sys.stderr.write(f"a bug stands in the log: {line}\n")
    return code or bool(bugs)


@contextlib.asynccontextmanager
async def _gateway(folder: Path) -> AsyncIterator[tuple[Gateway, str]]:
    topics = {"max_deliveries": 2, "retry_intervals_ms": [50], "on_exhausted": "park"}
    async with (
        run_gateway(folder, queues=2, topic=topics, ownership={"drain_s": 0.5}) as gateway,
        AsyncExitStack() as stack,
    ):
        group = gateway.settings["groups"][0]
        await gateway.client.create_topic(_OTHER, queues=1)
        await gateway.client.create_topic(_SPARE, queues=1)
        group["topics"].append({"name": _OTHER, **topics, "on_exhausted": "dead_letter"})
        proxy, at = await gateway.start_proxy()
        over = asyncio.Event()

        async def handle(message: Message) -> None:
            if message.key == "slow":
                await over.wait()
            elif message.key in _BROKEN:
                raise ValueError("broken")

        await stack.enter_async_context(consuming(gateway, at.thrift, "worker", handle=handle))
        stack.callback(over.set)
        await gateway.send(["parked", "slow", *"abcdefgh"] * 5)
        (letters,) = await gateway.client.queues(_OTHER)
        for number in range(3):
            letter = OutgoingMessage(topic=_OTHER, body=b"{}", key=f"dead-{number}")
            await gateway.client.send(letters, letter)
        await eventually(lambda: _prepared(proxy, gateway), within_s=30)
        resuming = spawn(_resume_when_drained(at.http), name="resuming")
        stack.push_async_callback(cancel_and_wait, resuming)
        yield gateway, at.http


async def _resume_when_drained(http: str) -> None:
    """Resume a drained proxy, which would have no queues for the following requests."""
    body = {"reason": "others want to ask it, too"}
    async with aiohttp.ClientSession() as session:
        while True:
            await asyncio.sleep(0.2)
            async with session.post(f"http://{http}/api/owners/resume", json=body) as answer:
                await answer.read()


def _prepared(proxy: Proxy, gateway: Gateway) -> bool:
    lane = proxy.lanes.find(gateway.group)
    if lane is None or not {gateway.topic, _OTHER} <= lane.counts.keys():
        return False
    return lane.counts[gateway.topic].parked > 0 and lane.counts[_OTHER].dead_lettered.total() > 2


async def _schemathesis(gateway: Gateway, http: str, arguments: list[str]) -> int:
    names = {"group": gateway.group, "topic": gateway.topic, "queue": gateway.queue(0).qid}
    names["spare_topic"] = _SPARE
    names["lease"] = await _a_lease(gateway, http)
    environment = {
        **os.environ,
        **{f"ORDERLANE_API_{name.upper()}": value for name, value in names.items()},
    }
    command = [
        *(Path(sys.executable).with_name("st"), "--config-file", _FOLDER / "schemathesis.toml"),
        *("run", f"http://{http}/api/openapi.json", "--seed", _SEED),
        *("--exclude-path", "/api/events", *arguments),  # a stream, which never ends
    ]
    # It writes its replay data into the current folder.
    running = await asyncio.create_subprocess_exec(
        *map(str, command), env=environment, cwd=gateway.histories
    )
    try:
        return await running.wait()
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


async def _a_lease(gateway: Gateway, http: str) -> str:
    place = f"http://{http}/api/groups/{gateway.group}/leases"
    async with aiohttp.ClientSession() as session, session.get(place) as answer:
        return str((await answer.json())["leases"][0]["lease"])


async def _still_serves(http: str) -> None:
    async with aiohttp.ClientSession() as session:
        for path in ("/healthz", "/readyz", "/metrics", "/api/groups"):
            async with session.get(f"http://{http}{path}") as answer:
                if answer.status != 200:
                    raise SystemExit(f"{path} answers {answer.status} afterwards")


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(sys.argv[1:])))
