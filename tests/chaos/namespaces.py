"""A network namespace for each process, with its own address and veth pair, on one bridge.

The run itself moves to new namespaces for networks, mounts and processes (``enter``). They vanish
with their last process, however it ends; they are invisible outside, and packets cannot leave them.

A one-way cut is a neighbour entry: the near kernel sends to an unused Ethernet address, so packets
are lost silently, and TCP resends them afterwards. ``ss -K`` resets connections. Delays use netem,
or a slow line (htb) if the kernel lacks it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.network import Cuttable, Target

#: Argument of a run that is already in its namespaces.
INSIDE = "--inside"
_UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_NETWORK, _BRIDGE = "10.77.0", "chaos"
#: An unused address.
_NOWHERE = "02:00:00:00:00:ff"
_NARROW = ("rate", "96kbit", "burst", "3000", "cburst", "3000")

_PROBE = """
mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip link set lo up &&
ip link add {bridge} type bridge && ip netns add probe &&
ip link add probe type veth peer name eth0 netns probe && ip -n probe link set eth0 up &&
ip -n probe neigh replace {network}.9 lladdr {nowhere} dev eth0 nud permanent &&
ss -K dst {network}.9
"""


_NAMES = Path("/run/netns")
_CLONE_NEWNET, _PR_SET_PDEATHSIG = 0x40000000, 1


class Refused(Exception):
    """This machine does not support such networks; the text says why."""


def unshare() -> list[str]:
    """Return the command; a user other than root becomes root of a user namespace."""
    more = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [_UNSHARE[0], *more, *_UNSHARE[1:]]


def probe() -> None:
    """Try all that is required. Raises Refused."""
    script = _PROBE.format(bridge=_BRIDGE, network=_NETWORK, nowhere=_NOWHERE)
    try:
        tried = subprocess.run(
            [*unshare(), "sh", "-ec", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(str(error)) from None
    if tried.returncode:
        raise Refused(tried.stderr.strip().splitlines()[-1] if tried.stderr else "unshare failed")


def enter(arguments: Sequence[str]) -> int:
    """Run ``python -m`` with *arguments* and ``INSIDE`` in new namespaces; return its exit code."""
    command = [*unshare(), sys.executable, "-m", *arguments, INSIDE]
    with subprocess.Popen(command, preexec_fn=_end_with_parent) as run:  # noqa: PLW1509
        while True:
            try:
                return run.wait()
            except KeyboardInterrupt:  # the run has received it too, or gets it now
                _interrupt(run)


def _end_with_parent() -> None:
    """End the run, and so all its processes, when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _interrupt(run: subprocess.Popen[bytes]) -> None:
    for pid in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split():
        os.kill(int(pid), signal.SIGINT)


@contextmanager
def _opened(path: str | Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _set_namespace(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*arguments: object) -> None:
    _do("ip", *arguments)


def _do(*command: object, check: bool = True) -> bool:
    """Run one command of iproute2; return whether it succeeded."""
    done = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, timeout=30, check=False
    )
    if check and done.returncode:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.returncode == 0


@dataclass(slots=True)
class Namespaces:
    """One bridge, with the run at the first address, and a namespace for each host."""

    netem: bool = False
    """The kernel can delay packets."""
    _numbers: dict[str, int] = field(default_factory=dict)
    _shaped: set[str] = field(default_factory=set)

    @classmethod
    def build(cls) -> Namespaces:
        """Create the bridge; only inside of ``enter``."""
        _do("mount", "-t", "tmpfs", "tmpfs", _NAMES)
        _ip("link", "set", "lo", "up")
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("link", "set", _BRIDGE, "up")
        _ip("addr", "add", f"{_NETWORK}.1/24", "dev", _BRIDGE)
        tc = ("tc", "qdisc")
        root = ("dev", _BRIDGE, "root")
        netem = _do(*tc, "add", *root, "netem", "delay", "1ms", check=False)
        if netem:
            _do(*tc, "del", *root)
        return cls(netem)

    @property
    def about(self) -> dict[str, Any]:
        """Return details for the report."""
        delays = "netem" if self.netem else "a slow line (the kernel has no netem)"
        return {"network": f"{len(self._numbers)} namespaces", "delays_by": delays}

    def address(self, host: str) -> str:
        """Return the host's address; the host is created if needed."""
        if host not in self._numbers:
            self._add(host)
        return f"{_NETWORK}.{self.number(host) + 1}"

    def number(self, host: str) -> int:
        """Return the host's number, from 1 on."""
        return self._numbers[host]

    def command(self, host: str) -> Sequence[str]:
        """Return the prefix of a command on the host."""
        self.address(host)
        return ("ip", "netns", "exec", self.name(host))

    def port(self, wanted: int) -> int:
        """Each host has all ports."""
        return wanted

    @contextmanager
    def visit(self, host: str) -> Iterator[None]:
        """In the context, the calling thread's sockets are on *host*."""
        with _opened("/proc/thread-self/ns/net") as home, _opened(_NAMES / self.name(host)) as away:
            _set_namespace(away)
            try:
                yield
            finally:
                _set_namespace(home)

    async def link(self, near: str, far: str, target: Target) -> Cuttable:
        """Return the link between two hosts."""
        for host in (near, far):
            self.address(host)
        return HostLink(self, near, far, target)

    def _add(self, host: str) -> None:
        number = self._numbers[host] = len(self._numbers) + 1
        name, pair = self.name(host), f"veth{number}"
        _ip("netns", "add", name)
        _ip("link", "add", pair, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", pair, "master", _BRIDGE, "up")
        for device in ("lo", "eth0"):
            _ip("-n", name, "link", "set", device, "up")
        _ip("-n", name, "addr", "add", f"{_NETWORK}.{number + 1}/24", "dev", "eth0")

    def name(self, host: str) -> str:
        """Return the name of the host's namespace."""
        return host.replace(" ", "-")

    # ---- packets --------------------------------------------------------------------------------

    def cut(self, source: str, sink: str) -> None:
        """Drop packets from *source* to *sink*."""
        place = (self.address(sink), "lladdr", _NOWHERE, "dev", "eth0", "nud", "permanent")
        _ip("-n", self.name(source), "neigh", "replace", *place)

    def join(self, source: str, sink: str) -> None:
        """Let them arrive again."""
        _ip("-n", self.name(source), "neigh", "del", self.address(sink), "dev", "eth0")

    def reset(self, one: str, other: str) -> None:
        """Reset connections between the two at both ends, if the ends receive it."""
        _do(*self.command(one), "ss", "-K", "-tn", "dst", self.address(other))

    def slow(self, source: str, sink: str, delay_s: float) -> None:
        """Delay packets from *source* to *sink*."""
        name, number = self.name(source), self.number(sink)
        tc, at = ("tc", "-n", name), ("dev", "eth0", "parent", "1:")
        if source not in self._shaped:
            self._shaped.add(source)
            _do(*tc, "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb")
        line = ("rate", "10gbit") if self.netem else _NARROW
        _do(*tc, "class", "add", *at, "classid", f"1:{number + 1:x}", "htb", *line)
        if self.netem:
            delay = (f"{delay_s * 1000:.0f}ms", f"{delay_s * 300:.0f}ms")
            parent = ("dev", "eth0", "parent", f"1:{number + 1:x}")
            _do(*tc, "qdisc", "add", *parent, "netem", "delay", *delay, "limit", 10_000)
        match = ("u32", "match", "ip", "dst", f"{self.address(sink)}/32")
        order = ("protocol", "ip", "prio", number)
        _do(*tc, "filter", "add", *at, *order, *match, "flowid", f"1:{number + 1:x}")

    def hasten(self, source: str, sink: str) -> None:
        """Remove the delay."""
        name, number = self.name(source), self.number(sink)
        tc, at = ("tc", "-n", name), ("dev", "eth0", "parent", "1:")
        _do(*tc, "filter", "del", *at, "protocol", "ip", "prio", number)
        _do(*tc, "class", "del", *at, "classid", f"1:{number + 1:x}")


@dataclass(slots=True, eq=False)
class HostLink:
    """The link from one host to another."""

    network: Namespaces
    near: str
    far: str
    target: Target
    _action: str = ""

    @property
    def address(self) -> str:
        """Return the port: each host has all ports."""
        return self.target() or ""

    def show(self, seen_as: Mapping[bytes, bytes]) -> None:
        """Do nothing: without a relay in between, answers are right as they are."""

    async def begin(self, action: str, *, delay_s: float = 0.0) -> None:
        """Start one of ``schedule.LINK_ACTIONS``."""
        self._action = action
        await asyncio.to_thread(self._begin, delay_s)

    async def heal(self) -> None:
        """Restore the link."""
        await asyncio.to_thread(self._heal)

    async def close(self) -> None:
        """Do nothing: the link ends with the network."""

    @property
    def _directions(self) -> list[tuple[str, str]]:
        """Return the directions that are cut or slow."""
        there, back = (self.near, self.far), (self.far, self.near)
        ways = {"hold-requests": [there], "hold-answers": [back], "lose-answers": [back]}
        return ways.get(self._action, [there, back])

    def _begin(self, delay_s: float) -> None:
        if self._action == "reset":
            self.network.reset(*self._directions[0])
        for source, sink in self._directions:
            if self._action == "delay":
                self.network.slow(source, sink, delay_s)
            else:
                self.network.cut(source, sink)

    def _heal(self) -> None:
        """Restore the link; if answers are to be lost, drop those in flight."""
        if self._action in ("reset", "lose-answers"):
            self.network.reset(self.near, self.far)
            self.network.reset(self.far, self.near)
        for source, sink in self._directions:
            if self._action == "delay":
                self.network.hasten(source, sink)
            else:
                self.network.join(source, sink)
        self._action = ""
