"""Play one case step by step, with its proxies and the client as a process."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import count, dropwhile, takewhile
from typing import Any

from broker_core.tasks import spawn
from testkit.processes import ROOT
from testkit.thin_clients.languages import client_environment
from tests.conformance.clients import cases
from tests.conformance.clients.cases import Case, Put, PutStep
from tests.conformance.clients.certificates import Certificates
from tests.conformance.clients.laws import broken_laws
from tests.conformance.clients.matching import fits
from tests.conformance.clients.stage import CaseProxy, Ready, wire_message
from tests.conformance.clients.trace import Trace

#: Limits for an expected event and for the client's first line: only the machine is slow.
PATIENCE_S, _BEGIN_S = 25.0, 60.0


_SIGNALS = {
    "term": signal.SIGTERM,
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "cont": signal.SIGCONT,
}


class CaseFailed(Exception):
    """The client did not meet the case's expectations; the text says how."""


@dataclass
class Play:
    """One run of one case with one client."""

    case: Case
    command: Sequence[str]
    certificates: Certificates
    patience_s: float = PATIENCE_S
    trace: Trace = field(default_factory=Trace)
    proxies: dict[str, CaseProxy] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None
    code: int | None = None
    errors: bytearray = field(default_factory=bytearray)  # the client's standard error
    _exits: AsyncExitStack = field(default_factory=AsyncExitStack)
    _leases: Any = field(default_factory=lambda: count(1))
    _at_s: float = 0.0  # of the previous step
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def run(self) -> None:
        """Play the case. Raises CaseFailed."""
        try:
            async with self._exits:
                await self._open_proxies()
                self._set_first_faults()
                try:
                    await self._start_client()
                    await self._play()
                finally:
                    await self._kill_client()
        finally:
            for task in self._tasks:
                task.cancel()
        self._judge()

    # ---- the stage --------------------------------------------------------------------------

    async def _open_proxies(self) -> None:
        spec = self.case.proxies
        for name in spec.names:
            proxy = CaseProxy(
                name=name,
                saw=self.trace.request,
                tls=self.certificates.server(spec.tls) if spec.tls else None,
            )
            self.proxies[name] = proxy
            await proxy.__aenter__()
        self._exits.push_async_callback(self._close_proxies)

    async def _close_proxies(self) -> None:
        for proxy in self.proxies.values():
            await proxy.__aexit__()

    def _address(self, name: str) -> str:
        """Return host:port for a server's name in the case."""
        if name.startswith("localhost:"):  # a name that may have several addresses
            port = self.proxies[name.partition(":")[2]].port
            return f"localhost:{port}"
        if name in ("dead", "silent"):
            bound = self._exits.enter_context(socket.socket())
            bound.bind(("127.0.0.1", 0))  # bound, not listening: refused
            if name == "silent":
                bound.listen(16)  # the kernel accepts connections; no answers
            return "{}:{}".format(*bound.getsockname())
        return self.proxies[name].address

    async def _start_client(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *self.command,
            json.dumps(self._options()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=client_environment(),
            limit=1 << 26,
        )
        for coroutine in (self._read_lines(), self._read_errors()):
            self._tasks.append(spawn(coroutine, name="client output"))

    def _options(self) -> dict[str, Any]:
        """Return the argument of the conformance program."""
        options = self.case.client.model_dump(exclude_none=True)
        options["servers"] = ",".join(self._address(name) for name in options["servers"])
        if "tls" in options:
            paths = {name: self.certificates.path(v) for name, v in options["tls"].items()}
            options["tls"] = paths
        return options

    async def _read_lines(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            try:
                read = json.loads(line)
                if read["e"] not in cases.LINES:
                    raise KeyError(read["e"])
            except (ValueError, TypeError, KeyError):
                read = {"e": "error", "kind": "bad line", "text": line.decode(errors="replace")}
            self.trace.line(read)
        self.code = await self.process.wait()
        self.trace.wake()

    async def _read_errors(self) -> None:
        assert self.process is not None
        assert self.process.stderr is not None
        while data := await self.process.stderr.read(1 << 16):
            self.errors += data
            del self.errors[:-20_000]

    async def _kill_client(self) -> None:
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()

    # ---- the dialogue -----------------------------------------------------------------------

    def _set_first_faults(self) -> None:
        """Set the faults at the start of a case: the client may be faster than its driver."""
        for step in takewhile(_is_fault, self.case.dialogue):
            assert isinstance(step, cases.FaultStep)
            self.proxies[step.at].fail(step)

    async def _play(self) -> None:
        numbered = enumerate(self.case.dialogue, start=1)
        for number, step in dropwhile(lambda each: _is_fault(each[1]), numbered):
            try:
                await self._step(step)
            except CaseFailed as failure:
                raise CaseFailed(f"step {number}: {failure}") from None
        await self._end()

    async def _step(self, step: cases.Step) -> None:
        match step:
            case cases.PutStep():
                await self._put(step)
            case cases.FaultStep():
                self.proxies[step.at].fail(step)
            case cases.ExpectStep():
                await self._expect(step)
                return
            case cases.QuietStep():
                await self._quiet(step)
            case cases.SignalStep():
                self._signal(_SIGNALS[step.signal])
            case cases.ProxyStep():
                await self._switch(step)
            case cases.TellStep():
                assert self.process is not None
                assert self.process.stdin is not None
                self.process.stdin.write(
                    json.dumps(_filled(step.tell, self._pulled())).encode() + b"\n"
                )
            case cases.ClientStep():
                self.code = None
                self.trace.new_life()
                await self._start_client()
            case cases.EndStep():
                await self._end(by_itself=step.end == "itself")
        self._at_s = time.monotonic()

    def _pulled(self) -> list[int]:
        """Return the lease ids of the client's last answer to a pull, in order."""
        answers = self.trace.of("pulled")
        return [each["lease"] for each in answers[-1].members["messages"]] if answers else []

    async def _put(self, step: PutStep) -> None:
        proxy = self.proxies[step.at]
        lease_ms = step.lease_ms or self.case.proxies.lease_ms
        name = step.home or self.case.proxies.home or step.at
        home = None if name == "none" else self._address(name)

        def ready(put: Put) -> Ready:
            lease = next(self._leases) if put.lease is None else put.lease
            return Ready(wire_message(put, lease=lease), put.topic, put.queue, lease_ms, home)

        await proxy.make_ready([ready(put) for put in step.put for _ in range(put.times)])

    async def _expect(self, step: cases.ExpectStep) -> None:
        at = None if step.at is None else self.proxies[step.at].address
        found: list[Any] = []

        def holds() -> bool:
            event = self.trace.take(step.expect, at=at)
            if event is not None:
                found.append(event)
            return event is not None or (self.code is not None)

        begun = self.trace.events
        await self.trace.until(lambda: bool(begun) or self.code is not None, within_s=_BEGIN_S)
        await self.trace.until(holds, within_s=self.patience_s)
        if not found:
            ended = f"; the client ended with {self.code}" if self.code is not None else ""
            raise CaseFailed(f"{_show(step.expect)} did not occur{ended}")
        passed_ms = (found[0].at_s - self._at_s) * 1000
        if step.after_ms is not None and passed_ms < step.after_ms:
            raise CaseFailed(f"{_show(step.expect)} came after {passed_ms:.0f} ms: too early")
        if step.before_ms is not None and passed_ms > step.before_ms:
            raise CaseFailed(f"{_show(step.expect)} came after {passed_ms:.0f} ms: too late")
        self._at_s = found[0].at_s

    async def _quiet(self, step: cases.QuietStep) -> None:
        before = len(self.trace.events)
        await asyncio.sleep(step.quiet_ms / 1000)
        for event in self.trace.events[before:]:
            for matcher in step.no:
                if event.matches(matcher):
                    raise CaseFailed(f"{_show(matcher)} occurred, which must not: {event}")

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def _switch(self, step: cases.ProxyStep) -> None:
        proxy = self.proxies[step.at]
        if step.proxy == "cut":
            proxy.hang_up()
        elif step.proxy == "down":
            await proxy.__aexit__()
        else:
            await proxy.__aenter__()

    async def _end(self, *, by_itself: bool = False) -> None:
        """Let the client end, and wait for it."""
        if self.code is not None:
            return
        if not by_itself:
            assert self.process is not None
            assert self.process.stdin is not None
            if self.case.client.mode == "consume":
                self._signal(signal.SIGTERM)
            else:
                self.process.stdin.close()
        if not await self.trace.until(lambda: self.code is not None, within_s=self.patience_s):
            raise CaseFailed("the client did not end")

    # ---- the verdict ------------------------------------------------------------------------

    def _judge(self) -> None:
        case = self.case
        for matcher in case.never:
            for event in self.trace.matching(matcher):
                raise CaseFailed(f"{_show(matcher)} occurred, which must not: {event}")
        for each in case.counts:
            times = len(self.trace.matching(each.of))
            wrong = (
                (each.times is not None and times != each.times)
                or (each.at_least is not None and times < each.at_least)
                or (each.at_most is not None and times > each.at_most)
            )
            if wrong:
                raise CaseFailed(f"{_show(each.of)} came {times} times")
        self._judge_order()
        if case.exit is not None:
            self._judge_exit(case.exit)
        self._judge_laws()

    def _judge_laws(self) -> None:
        for law, text in broken_laws(self.trace, self.case, self.proxies):
            if law not in self.case.waives:
                raise CaseFailed(f"law {law}: {text}")

    def _judge_order(self) -> None:
        places = []
        for matcher in self.case.order:
            place = next((n for n, e in enumerate(self.trace.events) if e.matches(matcher)), None)
            if place is None:
                raise CaseFailed(f"{_show(matcher)} never occurred")
            places.append(place)
        if places != sorted(places):
            raise CaseFailed(f"not in the order {'; '.join(map(_show, self.case.order))}")

    def _judge_exit(self, expected: cases.Exit) -> None:
        if self.code != expected.code:
            raise CaseFailed(f"the client ended with {self.code}, not {expected.code}")
        last = self.trace.events and next(
            (e for e in reversed(self.trace.events) if e.request is None), None
        )
        if not last or last.kind != "stopped":
            raise CaseFailed(f"its last line is {last}: expected stopped")
        if self.case.client.mode == "consume":
            ended_well = len(self.trace.matching({"end": {"outcome": "ok"}}))
            handled = expected.handled if expected.handled is not None else ended_well
            if not fits(handled, last.members.get("handled")):
                found = last.members.get("handled")
                raise CaseFailed(f"stopped reports {found} handled, expected {handled}")
        if not fits(expected.error, last.members.get("error")):
            found = last.members.get("error")
            raise CaseFailed(f"stopped reports error {found}, expected {expected.error}")


def _is_fault(step: cases.Step) -> bool:
    return isinstance(step, cases.FaultStep)


def _filled(value: Any, pulled: Sequence[int]) -> Any:
    """Expand ``{fill: n}`` to a text of n letters, too long for a file of cases.

    ``{pulled: n}`` becomes the id of the n-th lease of *pulled*: a real gateway chooses the ids.
    """
    match value:
        case {"fill": length}:
            return "x" * int(length)
        case {"pulled": number}:
            return pulled[number - 1]
        case dict():
            return {name: _filled(each, pulled) for name, each in value.items()}
        case list():
            return [_filled(each, pulled) for each in value]
    return value


def _show(matcher: cases.Matcher) -> str:
    ((kind, members),) = matcher.items()
    return f"{kind} {json.dumps(members)}" if members else kind
