"""A client process that is stopped for longer than its leases, and goes on: a zombie."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from broker_core.clock import now_ns
from tests.support.consumers import consuming
from tests.support.eventually import eventually
from tests.support.gateway import run_gateway
from tests.support.processes import ROOT
from tests.support.thin_process import FORMS

KEYS = 8


def lease_of(event: dict[str, Any]) -> tuple[str, int, int]:
    return (event["queue"], event["lease"], event["offset"])


@pytest.mark.parametrize("form", FORMS)
async def test_a_stopped_client_starts_no_handler_and_acks_nothing_on_leases_that_ended(
    form: str, tmp_path: Path
) -> None:
    async with run_gateway(tmp_path, queues=2, topic={"visibility_timeout_s": 0.8}) as gateway:
        _, at = await gateway.start_proxy()
        options = ["--proxy", at.thrift, "--group", gateway.group, "--name", "zombie"]
        zombie = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "tests.support.thin_process", "--form", form, *options],
            *["--history", str(gateway.histories), "--work-s", "0.2"],
            cwd=ROOT,
        )
        try:
            await gateway.send([f"key-{number % KEYS}" for number in range(40)])
            # In its hands: handlers at work, and prefetched messages that wait for one.
            await eventually(
                lambda: len(gateway.events("handle_start", node="zombie")) > 4, within_s=20
            )
            zombie.send_signal(signal.SIGSTOP)
            async with consuming(gateway, at.thrift, "other") as other:
                await eventually(gateway.all_finished, within_s=20)
                assert other.handled > 0
            ended = {lease_of(each) for each in gateway.events("expire", node="proxy-0")}
            assert len(ended) >= 2
            await gateway.send([f"key-{number % KEYS}" for number in range(8)])
            woken_ns = now_ns()
            zombie.send_signal(signal.SIGCONT)
            await eventually(gateway.all_finished, within_s=20)
            zombie.terminate()
            await asyncio.wait_for(zombie.wait(), 20)
        finally:
            if zombie.returncode is None:
                zombie.kill()
                await zombie.wait()

        starts = gateway.events("handle_start", node="zombie")
        after = [each for each in starts if each["t_ns"] > woken_ns]
        assert after, "it goes on with what is new"
        assert not ended & {lease_of(each) for each in after}
        fenced = {each["lease"] for each in gateway.events("ack_fenced", node="proxy-0")}
        at_work = ended & {lease_of(each) for each in starts}
        assert {lease for _, lease, _ in at_work} <= fenced, "the acks of its zombie handlers"
        report = gateway.verify()
        assert report.clean, report.violations
        assert report.counts.lost == 0
