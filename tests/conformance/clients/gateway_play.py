"""Play one case against a real gateway (nameserver, broker and proxy), and check all histories."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import yaml

from broker_core.remoting.key_hash import java_hash
from proxy.history.findings import Report
from testkit.brokers import Brokers
from testkit.gateway import GROUP, TOPIC, Gateway, run_gateway
from testkit.processes import Child, Children
from tests.conformance.clients import cases
from tests.conformance.clients.laws import broken_lines
from tests.conformance.clients.player import CaseFailed, Play

_QUEUES = 4
#: Shorter than the defaults, in the same proportions.
LOCK = {"renewal_s": 0.3, "trust_s": 1.2, "broker_lock_expiry_s": 2.0, "request_timeout_s": 0.4}
BROKERS = Brokers(settings={"lock_expiry_s": 2.0, "flush": "async"})
_NODE = "client"
#: Number of paired clock readings.
_LOOKS = 20


@dataclass
class GatewayPlay(Play):
    """``a`` is the proxy, in this process, or in a separate one if the case kills it."""

    gateway: Gateway | None = None
    folder: Path = Path()
    _address_of_a: str = ""
    _children: Children | None = None
    _child: Child | None = None
    _lives: int = 0  # of clients
    _sent: int = 0
    _port: int = field(default=0)

    async def run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="orderlane-gateway-") as folder:
            self.folder = Path(folder)
            await super().run()

    # ---- the stage --------------------------------------------------------------------------

    @property
    def _spec(self) -> cases.GatewaySpec:
        assert self.case.gateway is not None
        return self.case.gateway

    async def _open_proxies(self) -> None:
        settings: dict[str, Any] = {"lock": LOCK}
        if self._spec.tokens:
            settings["tokens"] = [
                {"name": f"t{number}", "sha256": hashlib.sha256(token.encode()).hexdigest()}
                for number, token in enumerate(self._spec.tokens)
            ]
        topic = {"visibility_timeout_s": self._spec.visibility_s, **self._spec.topic}
        gateway = run_gateway(self.folder, brokers=BROKERS, queues=_QUEUES, topic=topic, **settings)
        self.gateway = await self._exits.enter_async_context(gateway)
        if self._spec.process:
            self._children = self._exits.enter_context(Children(self.folder / "proxies"))
            await self._start_process()
        else:
            await self._start_inside()

    async def _start_inside(self) -> None:
        assert self.gateway is not None
        more: dict[str, Any] = {}
        if self._spec.tls:
            files = self.certificates.files
            more["listen.tls"] = {"certificate": files["server_cert"], "key": files["server_key"]}
            if self._spec.tls == "mutual":
                more["listen.tls"]["client_ca"] = files["ca"]
        _, addresses = await self.gateway.start_proxy(**more)
        self._address_of_a = addresses.thrift

    async def _start_process(self) -> None:
        """Start a proxy that can be killed; a restarted one has the same port."""
        assert self.gateway is not None
        assert self._children is not None
        if not self._port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._port = free.getsockname()[1]
        self._address_of_a = f"127.0.0.1:{self._port}"
        path = self.folder / "settings.yaml"
        settings = {**self.gateway.settings, "commit_every_s": 0.3}
        path.write_text(yaml.safe_dump(orjson.loads(orjson.dumps(settings))))
        listen = ("--thrift-port", self._port, "--http-port", 0)
        files = ("--settings", path, "--history", self.folder / "histories")
        nameserver = ("--nameserver", self.gateway.cluster.nameserver)
        self._child = self._children.start("proxy", *nameserver, *listen, *files)
        await asyncio.to_thread(self._child.ready)

    def _address(self, name: str) -> str:
        if name == "a":
            return self._address_of_a
        if name == "localhost:a":
            return f"localhost:{self._address_of_a.rpartition(':')[2]}"
        return super()._address(name)

    def _options(self) -> dict[str, Any]:
        options = super()._options()
        if options["group"] == "g":
            options["group"] = GROUP
        if self.case.client.mode == "consume":
            self._lives += 1
            node = f"{_NODE}-{self._lives}"
            path = self.folder / "histories" / f"{node}.jsonl"
            options.update(history=str(path), node=node, client_id=node)
            options["clock_offset_ns"] = clock_offset_ns()
        return options

    # ---- steps that differ from scripted proxies ----------------------------------------------

    async def _step(self, step: cases.Step) -> None:
        match step:
            case cases.SendStep():
                await self._send(step)
            case cases.FinishedStep():
                await self._until(self._all_finished, "all messages are finished")
            case _:
                await super()._step(step)

    async def _send(self, step: cases.SendStep) -> None:
        assert self.gateway is not None
        keys = [f"k{number % step.keys}" for number in range(step.send)]
        body = orjson.dumps(step.body).decode().replace("{", "{{").replace("}", "}}")
        await self.gateway.send(keys, body=body)
        self._sent += step.send

    async def _switch(self, step: cases.ProxyStep) -> None:
        if step.proxy == "down":
            assert self._child is not None, "only a proxy in a process of its own can be killed"
            await asyncio.to_thread(self._child.kill)
        else:
            await self._start_process()

    def _all_finished(self) -> bool:
        assert self.gateway is not None
        return self.gateway.all_finished()

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = asyncio.get_running_loop().time() + 2 * self.patience_s
        while not holds():
            if self.code is not None:
                raise CaseFailed(f"the client ended with {self.code} before {what}")
            if asyncio.get_running_loop().time() > deadline:
                raise CaseFailed(f"not within {2 * self.patience_s:.0f} s: {what}")
            await asyncio.sleep(0.05)

    # ---- the verdict ------------------------------------------------------------------------

    def _judge_laws(self) -> None:
        for law, text in broken_lines(self.trace, self.case):
            if law not in self.case.waives:
                raise CaseFailed(f"law {law}: {text}")
        assert self.gateway is not None
        self._judge_places()
        if self._sent:
            self._judge_histories(self.gateway.verify())

    def _judge_histories(self, report: Report) -> None:
        found = {
            name: violation.examples[0]
            for name, violation in report.violations.items()
            if not (self._spec.unfinished and name == "D1")
        }
        if found:
            raise CaseFailed(f"the histories: {found}")
        counts = report.counts
        if self._spec.handled is not None and counts.handled < self._spec.handled:
            raise CaseFailed(f"the histories hold {counts.handled} handled messages")
        if self._spec.duplicates is not None and counts.duplicates > self._spec.duplicates:
            raise CaseFailed(f"{counts.duplicates} messages were handled again")
        deliveries, handled = counts.deliveries, counts.handled
        if handled > deliveries:
            raise CaseFailed(f"{handled} messages were handled, {deliveries} delivered")

    def _judge_places(self) -> None:
        """Check that messages of a client's producer are in the queue of their key."""
        assert self.gateway is not None
        keys = {each["msg"]: each.get("key") for each in self.gateway.events("send")}
        for each in self.gateway.events("send_ok", node="proxy-*"):
            key = keys.get(each["msg"])
            if key is None:
                continue
            wanted = f"{self.gateway.cluster.broker_name}_{abs(java_hash(key)) % _QUEUES}"
            if each["topic"] == TOPIC and each["queue"] != wanted:
                raise CaseFailed(f"a message of key {key} is in {each['queue']}, not {wanted}")


def clock_offset_ns() -> int:
    """Return how far the histories' clock is ahead of the monotonic one: the suspended time.

    Both cannot be read at once. Of several tries the one with the shortest time between its
    readings counts, and a difference within that time is zero: otherwise a pause of this process
    would make clients write events before their causes.
    """
    least_ns, offset_ns = 1 << 62, 0
    for _ in range(_LOOKS):
        before_ns = time.monotonic_ns()
        ours_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        took_ns = time.monotonic_ns() - before_ns
        if took_ns < least_ns:
            least_ns, offset_ns = took_ns, ours_ns - before_ns
    return 0 if 0 <= offset_ns <= least_ns else offset_ns
