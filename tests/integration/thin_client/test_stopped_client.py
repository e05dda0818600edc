"""A zombie: a client process suspended for longer than its leases, and then resumed."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from broker_core.clock import now_ns
from testkit.eventually import eventually
from testkit.gateway import run_gateway
from testkit.processes import ROOT
from tests.integration.thin_client.thin_process import FORMS
from tests.support.consumers import consuming

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

KEYS = 24
HANDLERS = 4  # in each process


def lease_of(event: dict[str, Any]) -> tuple[str, int, int]:
    return (event["queue"], event["lease"], event["offset"])


async def test_a_stopped_client_starts_no_handler_and_acks_nothing_on_leases_that_ended(
    tmp_path: Path,
) -> None:
    """Both forms, each in its own process."""
    async with run_gateway(tmp_path, queues=4, topic={"visibility_timeout_s": 0.8}) as gateway:
        proxy, at = await gateway.start_proxy()
        zombies = []
        try:
            for form in FORMS:
                options = ["--proxy", at.thrift, "--group", gateway.group, "--name", form]
                zombies.append(
                    await asyncio.create_subprocess_exec(
                        *[
                            sys.executable,
                            "-m",
                            "tests.integration.thin_client.thin_process",
                            "--form",
                            form,
                        ],
                        *[*options, "--history", str(gateway.histories), "--work-s", "1"],
                        *["--concurrency", str(HANDLERS)],
                        cwd=ROOT,
                    )
                )
            await eventually(
                lambda: sum(lane.presence.waiting_pulls for lane in proxy.lanes) == len(FORMS),
                within_s=30,
            )
            # All handlers are busy for seconds, and prefetched messages wait: a handler that has
            # already checked its lease when its process is suspended would start on resumption.
            await gateway.send([f"key-{number % KEYS}" for number in range(KEYS * 4)])
            await eventually(
                lambda: all(
                    len(gateway.events("handle_start", node=form)) >= HANDLERS for form in FORMS
                ),
            )
            for zombie in zombies:
                zombie.send_signal(signal.SIGSTOP)
            async with consuming(gateway, at.thrift, "other") as other:
                await eventually(gateway.all_finished)
                assert other.handled > 0
            ended = {lease_of(each) for each in gateway.events("expire", node="proxy-0")}
            assert len(ended) >= 2
            woken_ns = now_ns()
            for zombie in zombies:
                zombie.send_signal(signal.SIGCONT)
            await gateway.send([f"key-{number % KEYS}" for number in range(KEYS)])
            await eventually(gateway.all_finished)
            for zombie in zombies:
                zombie.terminate()
                await asyncio.wait_for(zombie.wait(), 20)
        finally:
            for zombie in zombies:
                if zombie.returncode is None:
                    zombie.kill()
                    await zombie.wait()

        starts = [each for form in FORMS for each in gateway.events("handle_start", node=form)]
        after = [each for each in starts if each["t_ns"] > woken_ns]
        assert after, "they continue with new messages"
        assert not ended & {lease_of(each) for each in after}
        assert ended & {lease_of(each) for each in starts}, "some handlers were running"
        taken = {lease_of(each) for each in gateway.events("ack_ok", node="proxy-0")}
        assert not ended & taken, "the acks of zombie handlers are refused"
        report = gateway.verify()
        assert report.clean, report.violations
        assert report.counts.lost == 0
