"""``orderlane consume --exec``: the command's input, and the effect of its exit code."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker_core.tasks import spawn
from proxy.cli import executor
from proxy.cli.consume import LeaseWatch
from proxy.cli.executor import Executor, environment_of
from proxy.history.record import NullHistory
from testkit.eventually import eventually
from testkit.processes import Children
from testkit.scripted_proxy import ScriptedProxy
from tests.support.client_messages import message_with
from thin_client import AsyncConsumer, Timing

pytestmark = pytest.mark.sockets

QUICK = Timing(request_timeout_s=20, drain_timeout_s=0.5)


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy(lease_ms=600) as scripted:
        yield scripted


@asynccontextmanager
async def running(proxy: ScriptedProxy, command: str) -> AsyncIterator[AsyncConsumer]:
    executor = Executor(command)
    watch = LeaseWatch(NullHistory(), group="g", consumer="c", executor=executor)
    consumer = AsyncConsumer(proxy.address, group="g", timing=QUICK, observer=watch)
    task = spawn(consumer.run(executor, handle_signals=False), name="consumer")
    yield consumer
    consumer.stop()
    await asyncio.wait_for(task, 60)


def nacks_of(proxy: ScriptedProxy) -> list[Any]:
    """Return the messages that were not acked, with the reasons."""
    return [
        nack
        for request in proxy.requests
        for batch in (getattr(request.argument, "acks", None) or ())
        for nack in batch.nacked or ()
    ]


async def test_the_command_receives_body_and_fields(proxy: ScriptedProxy, tmp_path: Path) -> None:
    """The body arrives unchanged on stdin, the fields in the environment."""
    body = bytes(range(256)) * 4_000
    await proxy.put("customer 7", body=body)
    command = f"cat > {tmp_path}/body; env > {tmp_path}/env"
    async with running(proxy, command):
        await proxy.until(lambda: bool(proxy.verdicts))
    assert proxy.verdicts == [(1, "ok")]
    assert (tmp_path / "body").read_bytes() == body
    env = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert env["ORDERLANE_TOPIC"] == "orders"
    assert env["ORDERLANE_QUEUE"] == "broker-a_0"
    assert (env["ORDERLANE_KEY"], env["ORDERLANE_ORDER_KEY"]) == ("customer 7", "customer 7")
    assert (env["ORDERLANE_OFFSET"], env["ORDERLANE_ATTEMPT"]) == ("0", "1")
    assert env["ORDERLANE_MESSAGE_ID"] == "M1"
    assert "PATH" in env


async def test_a_body_that_the_disk_has_no_room_for_is_never_handled_in_part(
    proxy: ScriptedProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk takes the beginning, and reports an error at the next write only."""
    real = tempfile.TemporaryFile

    class FullDisk:
        def __init__(self) -> None:
            self.file, self.room = real(buffering=0), 1_000

        def __enter__(self) -> FullDisk:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def write(self, data: memoryview) -> int:
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = self.file.write(data[: self.room])
            self.room -= written
            return int(written)

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: FullDisk())
    await proxy.put("customer 7", body=b"x" * 1_001)
    async with running(proxy, f"cat > {tmp_path}/body"):
        await proxy.until(lambda: bool(proxy.verdicts))
    assert proxy.verdicts[0] == (1, "retry")
    why = "CommandFailed: the body cannot be stored for the command: No space left on device"
    assert str(nacks_of(proxy)[0].reason) == why
    assert not (tmp_path / "body").exists()


def test_values_that_an_environment_cannot_hold_are_replaced() -> None:
    message = message_with(
        key="a\0b",
        order_key_bytes=b"\xfe\x00",
        properties={"traceparent": "00-1-2-01", "x": "\0"},
    )
    env = environment_of(message)
    assert (env["ORDERLANE_KEY"], env["ORDERLANE_ORDER_KEY"]) == ("a\ufffdb", "0xfe00")
    assert env["TRACEPARENT"] == "00-1-2-01"
    assert orjson.loads(env["ORDERLANE_PROPERTIES"])["x"] == "\0"
    assert not {"ORDERLANE_TAG", "ORDERLANE_MESSAGE_ID", "TRACESTATE"} & env.keys()


def test_fields_of_another_message_are_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a command of ``consume --exec`` that consumes itself."""
    for name in ("ORDERLANE_KEY", "ORDERLANE_TAG", "TRACEPARENT", "ORDERLANE_CLIENT_TOKEN"):
        monkeypatch.setenv(name, "outer")
    env = environment_of(message_with(key=None, tag=None, order_key_bytes=None))
    assert not {"ORDERLANE_KEY", "ORDERLANE_TAG", "TRACEPARENT"} & env.keys()
    assert env["ORDERLANE_CLIENT_TOKEN"] == "outer"


@pytest.mark.parametrize(
    ("command", "verdict", "reason"),
    [
        ("exit 0", "ok", None),
        ("echo first >&2; echo schema is wrong >&2; exit 65", "reject", "schema is wrong"),
        ("exit 69", "defer", None),
        ("echo busy >&2; exit 1", "retry", "CommandFailed: busy"),
        ("exit 3", "retry", "CommandFailed: exit code 3"),
        ("kill -9 $$", "retry", "CommandFailed: exit code -9"),
        ("no-such-command-here", "retry", "not found"),
    ],
)
async def test_the_exit_code_is_the_outcome(
    proxy: ScriptedProxy,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    verdict: str,
    reason: str | None,
) -> None:
    monkeypatch.setattr(executor, "LAST_WORDS_S", 20)  # the end of its stderr
    await proxy.put("k")
    async with running(proxy, command):
        await proxy.until(lambda: bool(proxy.verdicts))
    assert proxy.verdicts == [(1, verdict)]
    found = [reason in str(nack.reason) for nack in nacks_of(proxy)]
    assert found == [True] * (reason is not None)


async def test_background_processes_of_a_command_do_not_delay_it(
    proxy: ScriptedProxy,
) -> None:
    await proxy.put("k")
    async with running(proxy, "sleep 30 & exit 0"):
        await proxy.until(lambda: bool(proxy.verdicts), timeout_s=15)
    assert proxy.verdicts == [(1, "ok")]


async def test_a_command_whose_lease_is_lost_is_terminated(
    proxy: ScriptedProxy, tmp_path: Path
) -> None:
    """Another client may handle the same message by then."""
    await proxy.put("k")
    command = (
        f"trap 'echo ended > {tmp_path}/end; exit 0' TERM; touch {tmp_path}/begun; sleep 60 & wait"
    )
    async with running(proxy, command):
        await eventually((tmp_path / "begun").exists)
        proxy.lose(1)  # no shorter, or it would not begin on a slow machine
        await eventually((tmp_path / "end").exists)


@pytest.mark.parametrize("command", ["sleep 60", "trap '' TERM; sleep 60; sleep 60"])
async def test_a_command_that_outlasts_the_drain_is_terminated_and_its_message_returned(
    proxy: ScriptedProxy, tmp_path: Path, command: str
) -> None:
    await proxy.put("k")
    async with running(proxy, f"echo $$ > {tmp_path}/pid; {command}"):
        await eventually((tmp_path / "pid").exists)
    assert proxy.verdicts == [(1, "defer")]
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
def test_the_verb_runs_the_command_for_each_message(tmp_path: Path) -> None:
    """Messages of a key are handled in order, and only the count is printed."""
    with Children(tmp_path) as children:
        at = children.start("up", "--data", "data", *any_ports()).ready()
        proxy = ("--proxy", at["thrift"])
        children.run("produce", "orders", "--count", 30, "--keys", 3, *proxy)
        command = f"cat >> {tmp_path}/$ORDERLANE_KEY; echo >> {tmp_path}/$ORDERLANE_KEY"
        done = children.run("consume", "g", "orders", "--exec", command, "--count", 30, *proxy)
    assert (done.code, done.out) == (0, "")
    assert done.err.endswith("30 messages handled\n")
    numbers = [
        [orjson.loads(line)["n"] for line in path.read_text().splitlines()]
        for path in tmp_path.glob("key-*")
    ]
    assert sum(map(len, numbers)) == 30
    assert all(each == sorted(each) for each in numbers)


def any_ports() -> list[object]:
    names = ("thrift", "http", "nameserver", "broker")
    return [part for name in names for part in (f"--{name}-port", 0)]
