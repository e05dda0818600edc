"""``orderlane top`` against a running gateway: one frame in a pipe, live in a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from testkit.eventually import eventually
from testkit.gateway import GROUP
from testkit.processes import ROOT
from tests.integration.operator.queue_site import Desk, site
from tests.support.consumers import consuming


async def test_one_frame_for_a_pipe(tmp_path: Path) -> None:
    """Includes queues that other proxies own."""
    desk = Desk("a")
    quick = {"renewal_s": 0.2, "trust_s": 8, "request_timeout_s": 3}
    async with site(tmp_path, queues=2, lock=quick) as it:
        other, there = await it.gateway.start_proxy()
        async with (
            consuming(it.gateway, it.at.thrift, "one", handle=desk),
            consuming(it.gateway, there.thrift, "two", handle=desk),
        ):
            await eventually(
                lambda: all(
                    sum(len(lane.statistics()) for lane in proxy.lanes) == 1
                    for proxy in (it.proxy, other)
                ),
                within_s=20,
            )
            await it.send(*"aaab")
            await eventually(lambda: desk.seen["a"] == [1], within_s=20)
            await eventually(lambda: desk.seen["b"] == [4], within_s=20)
            await eventually(lambda: len(it.gateway.events("finish")) == 1, within_s=20)
            code, out, err = await it.verb("top", "--once", "--every", "0.2")
            assert (code, err) == (0, "")
            lines = out.splitlines()
            assert lines[2].startswith("GROUP ")
            name, queues, lag, rate, unfinished, blocked, parked, leased, *_ = lines[3].split()
            assert (name, queues, unfinished, blocked, leased) == (GROUP, "2", "3", "2", "1")
            assert parked == "0"
            assert (rate, int(lag) >= 3) == ("0", True)
            assert any(line.startswith("a  ") and " leased" in line for line in lines)
            owners = lines[lines.index("OWNERS") + 1 :]
            assert {line.split()[1] for line in owners} == {it.at.http, there.http}
            assert all(len(line) <= 80 for line in lines)
            desk.let_go()


async def test_a_missing_group_and_a_missing_proxy_are_named(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        refused = await it.refused("top", "unknown", "--once")
        assert refused.startswith(f"there is no group 'unknown' at {it.at.http}")
        assert "no proxy answers" in await _refused_at("127.0.0.1:1", it)


async def _refused_at(http: str, it: object) -> str:
    code, out, err = await it.verb("top", "--once", http=http)  # type: ignore[attr-defined]
    assert (code, out) == (2, "")
    return str(err)


@pytest.mark.sockets
async def test_live_in_a_terminal_until_q_is_pressed(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        ours, theirs = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxy.cli", "top", "--http", it.at.http, "--every", "0.2"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        )
        os.close(theirs)
        os.set_blocking(ours, False)
        shown = bytearray()

        def shows() -> bool:
            with suppress(BlockingIOError):
                shown.extend(os.read(ours, 1 << 16))
            return shown.count(b"orderlane top") >= 2 and GROUP.encode() in shown

        try:
            await eventually(shows, within_s=60)
            os.write(ours, b"q")
            assert await asyncio.wait_for(process.wait(), 30) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            os.close(ours)
