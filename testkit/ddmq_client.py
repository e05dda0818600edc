"""A consumer that behaves like DDMQ's own: only its fields, acks by offset, no leases or owners.

``python -m testkit.ddmq_client --servers … --group … --mode go`` runs one as a process, until
SIGTERM. It records in ``violations`` every behavior that no server may show such a client.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from broker_core.clock import now_ns
from broker_core.remoting.key_hash import plain_key
from proxy.history.record import History, HistoryWriter, NullHistory
from testkit.ddmq_wire import Broken, DdmqConnection, PullException

#: Expected errors between a client and a server that was killed, stopped or cut off.
_TROUBLE = (OSError, EOFError, TimeoutError, PullException, Broken)
#: Links of one chain of verdicts; the accelerated codec nests at most 64 structs.
_LINKS = 61


@dataclass(frozen=True, slots=True)
class Mode:
    """The behavior of one of DDMQ's clients. None: the field is not sent."""

    #: Seconds without an answer after which the connection is closed.
    socket_timeout_s: float
    linger_ms: int | None
    batch: int | None
    version: str | None
    #: Handles all messages of a batch concurrently.
    parallel: bool = False
    #: After any failure: sends the acks again on a new connection, or forgets them.
    keeps_acks: bool = True
    #: Seconds before it reconnects.
    pause_s: float = 0.1


MODES = {
    "go": Mode(2.0, 1000, 16, "carrera@go", parallel=True, pause_s=5.0),
    "java": Mode(5.0, 2000, 8, "carrera@java_${project.version}"),
    "cpp": Mode(5.0, 500, 4, "carrera@cpp", keeps_acks=False),
    "bare": Mode(5.0, None, None, None),
}


@dataclass(frozen=True, slots=True)
class DdmqMessage:
    """A message as a DDMQ client sees it. ``pulled_ns``: when its pull was sent."""

    topic: str
    qid: str
    offset: int
    key: str | None
    value: bytes
    tag: str | None
    properties: dict[str, str]
    pulled_ns: int


Handle = Callable[[DdmqMessage], Awaitable[bool]]


@dataclass(slots=True, eq=False)
class DdmqClient:
    """Pulls from one of *servers*, the next after each failure; ``run`` until ``stop``.

    *handle* returns False, or raises, for a failed offset. *order* is the group's order key: with
    ``KEY`` the history contains the message key, otherwise no key.
    """

    servers: list[str]
    group: str
    mode: Mode
    name: str = "ddmq"
    topic: str | None = None
    order: str = "KEY"
    history: History = field(default_factory=NullHistory)
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    contexts: set[tuple[str, str]] = field(default_factory=set)
    _pending: dict[tuple[str, str], tuple[list[int], list[int]]] = field(default_factory=dict)
    _connection: DdmqConnection | None = None
    _foreign: set[int] = field(default_factory=set)
    _failures: int = 0
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Stop after the current batch; its verdicts are submitted."""
        self._stopping.set()

    async def run(self, handle: Handle) -> None:
        """Pull and handle until ``stop``."""
        while not self._stopping.is_set():
            pulled_ns = now_ns()
            response = await self._pull()
            if response is None:
                await self._pause()
            else:
                await self._handle(handle, self._messages(response, pulled_ns))
        await self._flush()
        self._hang_up()

    def report(self) -> dict[str, Any]:
        """Return the counts and violations."""
        if self._foreign:
            self.violations.append(f"answers had fields {sorted(self._foreign)}, not DDMQ's")
            self._foreign.clear()
        return {
            "mode": next((name for name, mode in MODES.items() if mode == self.mode), "own"),
            **self.counts,
            "contexts": len(self.contexts),
            "violations": self.violations,
        }

    # ---- the wire -------------------------------------------------------------------------------

    async def _pull(self) -> dict[str, Any] | None:
        """Return an answer; None if there was none, and the connection is lost."""
        mode = self.mode
        sent = dict(list(self._pending.items())[:_LINKS])
        request = {
            "groupId": self.group,
            "topic": self.topic,
            "maxBatchSize": mode.batch,
            "maxLingerTime": mode.linger_ms,
            "version": mode.version,
            "result": self._chain(sent),
        }
        before = now_ns()
        try:
            response = await self._call("pull", request)
        except _TROUBLE as error:
            self._failed(error, f"pull ({(now_ns() - before) / 1e9:.2f} s)")
            return None
        for context in sent:
            del self._pending[context]
        self.counts["pulls"] += 1
        if not response["messages"]:
            self.counts["empty"] += 1
            self.counts["early"] += now_ns() - before < 19_000_000
        return dict(response)

    async def _flush(self) -> None:
        """Submit the remaining verdicts on the existing connection, if any."""
        while self._pending and self._connection is not None:
            sent = dict(list(self._pending.items())[:_LINKS])
            try:
                done = await self._call("submit", self._chain(sent) or {})
            except _TROUBLE as error:
                self._failed(error, "submit")
                return
            if done is not True:
                self.violations.append(f"submit was answered {done!r}")
            for context in sent:
                del self._pending[context]

    async def _call(self, method: str, argument: dict[str, Any]) -> Any:
        async with asyncio.timeout(self.mode.socket_timeout_s):
            if self._connection is None:
                server = self.servers[self._failures % len(self.servers)]
                self._connection = await DdmqConnection.open(server, foreign=self._foreign)
            return await self._connection.call(method, argument)

    def _failed(self, error: Exception, what: str) -> None:
        self.counts["failures"] += 1
        self._failures += 1
        self._hang_up()
        if isinstance(error, PullException | Broken):
            self.violations.append(f"{what}: {type(error).__name__}: {error}")
        if not self.mode.keeps_acks:
            self.counts["acks_dropped"] += sum(len(ok) for ok, _ in self._pending.values())
            self._pending.clear()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.mode.pause_s):
                await self._stopping.wait()

    def _chain(self, verdicts: dict[tuple[str, str], tuple[list[int], list[int]]]) -> Any:
        """Return the verdicts as linked ConsumeResults, the first outermost."""
        result: dict[str, Any] | None = None
        for (topic, qid), (success, failed) in reversed(verdicts.items()):
            context = {"groupId": self.group, "topic": topic, "qid": qid}
            link = {"context": context, "successOffsets": success, "failOffsets": failed}
            result = {**link, "nextResult": result}
        return result

    # ---- messages -------------------------------------------------------------------------------

    def _messages(self, response: dict[str, Any], pulled_ns: int) -> list[DdmqMessage]:
        if not response["messages"]:
            return []
        topic, qid = response["context"]["topic"], response["context"]["qid"]
        self.contexts.add((topic, qid))
        messages = [
            DdmqMessage(
                topic,
                qid,
                each["offset"],
                each.get("key"),
                each["value"],
                each.get("tag"),
                each.get("properties", {}),
                pulled_ns,
            )
            for each in response["messages"]
        ]
        keys = Counter(each.key for each in messages if each.key is not None)
        if self.order == "KEY" and (twice := [key for key, count in keys.items() if count > 1]):
            self.violations.append(f"one batch of {qid} had several messages of {twice}")
        if response["context"].get("groupId") != self.group:
            self.violations.append(f"a batch for group {response['context'].get('groupId')}")
        return messages

    async def _handle(self, handle: Handle, messages: list[DdmqMessage]) -> None:
        if self.mode.parallel:
            await asyncio.gather(*(self._handle_one(handle, each) for each in messages))
            return
        for message in messages:
            await self._handle_one(handle, message)

    async def _handle_one(self, handle: Handle, message: DdmqMessage) -> None:
        self._write("handle_start", message)
        try:
            good = await handle(message)
        except Exception:  # raised by the application: the message failed
            good = False
        # DDMQ's "fail" is orderlane's retry.
        self._write("handle_end", message, outcome="ok" if good else "retry")
        verdicts = self._pending.setdefault((message.topic, message.qid), ([], []))
        verdicts[0 if good else 1].append(message.offset)
        self.counts["handled" if good else "failed"] += 1

    def _write(self, event: str, message: DdmqMessage, **fields: Any) -> None:
        if self.history.enabled:
            self.history.write(
                event,
                group=self.group,
                consumer=self.name,
                topic=message.topic,
                queue=message.qid.partition("#")[0],
                offset=message.offset,
                msg=None,
                order=(plain_key(message.key or "") or None) if self.order == "KEY" else None,
                attempt=None,
                lease=None,
                pulled_ns=message.pulled_ns,
                **fields,
            )


async def _run(client: DdmqClient, *, work_ms: float, fail_every: int) -> None:
    handled = 0

    async def handle(message: DdmqMessage) -> bool:
        nonlocal handled
        handled += 1
        number = handled
        if work_ms:
            await asyncio.sleep(work_ms / 1000)
        return not (fail_every and number % fail_every == 0)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, client.stop)
    await client.run(handle)


def main() -> int:
    """Run one until SIGTERM, then print its report as JSON; return 1 if a server violated the
    contract.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True, help="host:port, separated by commas")
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic")
    parser.add_argument("--mode", choices=sorted(MODES), default="java")
    parser.add_argument("--name", required=True)
    parser.add_argument("--history", type=Path)
    parser.add_argument("--order", default="KEY")
    parser.add_argument("--pause-s", type=float, help="seconds before it reconnects")
    parser.add_argument("--work-ms", type=float, default=0.0)
    parser.add_argument("--fail-every", type=int, default=0, help="fail one of N handlings")
    options = parser.parse_args()
    mode = MODES[options.mode]
    if options.pause_s is not None:
        mode = dataclasses.replace(mode, pause_s=options.pause_s)
    history: History = NullHistory()
    if options.history is not None:
        history = HistoryWriter(options.history, options.name, parts=("consumer",))
    client = DdmqClient(
        options.servers.split(","),
        options.group,
        mode,
        name=options.name,
        topic=options.topic,
        order=options.order,
        history=history,
    )
    asyncio.run(_run(client, work_ms=options.work_ms, fail_every=options.fail_every))
    history.close()
    report = {**client.report(), "mode": options.mode}
    sys.stdout.buffer.write(orjson.dumps(report) + b"\n")
    return 1 if client.violations else 0


if __name__ == "__main__":
    sys.exit(main())
