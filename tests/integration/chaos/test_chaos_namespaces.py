"""Network namespaces for the processes of a long chaos run, and clocks that jump."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker_core.clock import wall_ms
from testkit.missing_tools import without
from testkit.processes import ROOT
from tests.chaos import namespaces
from tests.chaos.clocks import Clocks

#: Runs inside the namespaces: two hosts, a connection between them, and faults on it.
_INSIDE = """
import asyncio, socket
from contextlib import suppress
from tests.chaos.namespaces import Namespaces

def silent(sink):
    sink.settimeout(0.5)
    with suppress(TimeoutError):
        return not sink.recv(9)
    return True

async def main():
    network = Namespaces.build()
    at = network.address("proxy 0")
    link = await network.link("client 0", "proxy 0", lambda: f"{at}:9")
    assert link.address == f"{at}:9" and network.address("client 0") != at
    with network.visit("proxy 0"):
        server = socket.create_server((at, 9))
    with network.visit("client 0"):
        near = socket.create_connection((at, 9), timeout=20)
    far, peer = server.accept()
    assert peer[0] == network.address("client 0"), peer
    for action, source, sink in (("hold-requests", near, far), ("hold-answers", far, near)):
        await link.begin(action)
        source.sendall(b"held")
        assert silent(sink), action
        sink.sendall(b"not held")  # arrives, but the acknowledgement does not
        source.settimeout(20)
        assert source.recv(9) == b"not held", action
        await link.heal()
        sink.settimeout(20)
        assert sink.recv(9) == b"held", action
    await link.begin("delay", delay_s=0.2)
    near.sendall(b"slow")
    far.settimeout(20)
    assert far.recv(9) == b"slow"
    await link.heal()
    await link.begin("lose-answers")
    far.sendall(b"lost")
    await link.heal()
    near.settimeout(20)
    with suppress(OSError):
        assert near.recv(9) != b"lost"
    print("done", flush=True)

asyncio.run(main())
"""


def test_a_link_between_namespaces_can_be_cut_one_way_delayed_and_reset() -> None:
    try:
        namespaces.probe()
    except namespaces.Refused as refused:
        pytest.skip(f"no namespaces here: {refused}")
    done = subprocess.run(
        [*namespaces.unshare(), sys.executable, "-c", _INSIDE],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )

    assert done.stdout == "done\n", done.stderr


def test_the_wall_clock_of_one_process_jumps_and_no_other_clock(tmp_path: Path) -> None:
    clocks = Clocks.open(tmp_path)
    if clocks.library is None:
        without("gcc not found: no clock can be moved")
    program = (
        "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)\n"
    )
    environment = {**os.environ, **clocks.environment("proxy 0")}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def seen() -> tuple[float, float]:
            """Return how far its clocks are ahead of ours, in seconds."""
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            wall, monotonic = map(float, process.stdout.readline().split())
            return wall - wall_ms() / 1000, monotonic - time.monotonic()

        # Jumps are ten minutes or more, so slow reads do not matter.
        assert seen() == pytest.approx((0, 0), abs=30)
        for jump_s in (3600, -600, 0):
            clocks.move("proxy 0", jump_s)
            assert seen() == pytest.approx((jump_s, 0), abs=30)
        process.stdin.close()
