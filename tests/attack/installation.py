"""An installation under attack: nameserver, broker and proxies as separate processes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from testkit.processes import Child, Children
from testkit.thrift_client import COMPACT, ThriftClient

#: The topic and the group of ``start_all``.
TOPIC, GROUP = "orders", "billing"


@dataclass(slots=True)
class Installation:
    """The processes of one attack, in a folder of their own. Addresses are set by the starts."""

    children: Children
    nameserver: str = ""
    broker: str = ""
    thrift: str = ""
    http: str = ""
    """Addresses, ``host:port``. Of several brokers or proxies: those of the last one started."""
    running: list[Child] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The working directory of all processes."""
        return self.children.folder

    def start_all(
        self, *, settings: dict[str, Any] | None = None, broker: dict[str, Any] | None = None
    ) -> Child:
        """Start nameserver, broker and a proxy with group ``billing`` on topic ``orders``.

        *settings* and *broker* are added to the settings of the proxy and the broker. Returns the
        proxy.
        """
        self.start_nameserver()
        self.start_broker(**(broker or {}))
        return self.start_proxy(**(settings or {}))

    def start_nameserver(self, *options: object) -> Child:
        """Start a nameserver; *options* of its command."""
        child = self._started(
            self.children.start("nameserver", "--listen", "127.0.0.1:0", *options)
        )
        self.nameserver = child.ready()["nameserver"]
        return child

    def start_broker(self, *, data: str = "data", **settings: Any) -> Child:
        """Start a broker with its files in the folder *data*; topics are created by the first
        send.
        """
        file = self._write("broker", {"auto_create_topics": True, **settings})
        where = ("--data", data, "--listen", "127.0.0.1:0", "--nameserver", self.nameserver)
        child = self._started(self.children.start("broker", *where, "--broker-settings", file))
        self.broker = child.ready()["broker"]
        return child

    def start_proxy(self, **settings: Any) -> Child:
        """Start a proxy on free ports; *settings* replace the group ``billing`` on ``orders`` if
        they name groups.
        """
        groups = [{"name": GROUP, "topics": [{"name": TOPIC, "order_key": "KEY"}]}]
        ports = {"thrift": "127.0.0.1:0", "http": "127.0.0.1:0", **settings.pop("listen", {})}
        file = self._write("proxy", {"groups": groups, **settings, "listen": ports})
        where = ("--settings", file, "--nameserver", self.nameserver)
        child = self._started(self.children.start("proxy", *where))
        ready = child.ready()
        self.thrift, self.http = (
            ready[name].replace("0.0.0.0", "127.0.0.1") for name in ("thrift", "http")
        )
        return child

    async def open(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a plain connection to ``host:port``."""
        host, _, port = address.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def ask(
        self, path: str, body: bytes | None = None, *, method: str = "", **headers: str
    ) -> tuple[int, bytes]:
        """Return status and whole answer of a request to the HTTP port of the last proxy.

        In the names of *headers* an underscore stands for a hyphen. POST is the default with a
        body, GET without.
        """
        sent = {"Host": self.http, "Connection": "close"}
        if body is not None:
            sent |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        method = method or ("GET" if body is None else "POST")
        return await self.raw(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + (body or b""))

    async def raw(self, request: bytes, *, within_s: float = 60) -> tuple[int, bytes]:
        """Send bytes to the HTTP port; return the status, 0 without one, and the whole answer."""
        reader, writer = await self.open(self.http)
        answer = b""
        with suppress(ConnectionError):
            writer.write(request)
            async with asyncio.timeout(within_s):
                while part := await reader.read(65_536):
                    answer += part
        writer.close()
        return (int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0), answer

    async def metric(self, name: str) -> float:
        """Return the sum of a metric's samples at the last proxy; 0 if it has none."""
        _, page = await self.ask("/metrics")
        pattern = rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)"
        return sum(map(float, re.findall(pattern, page.decode(), re.MULTILINE)))

    async def connect(self, tls: ssl.SSLContext | None = None) -> ThriftClient:
        """Return a raw client of the Thrift port, on a connection of its own."""
        host, _, port = self.thrift.rpartition(":")
        return ThriftClient(*await asyncio.open_connection(host, int(port), ssl=tls), COMPACT)

    async def connect_slowly(self, tls: ssl.SSLContext | None = None) -> ThriftClient:
        """Return a raw client whose system accepts only a few kilobytes that it does not read."""
        host, _, port = self.thrift.rpartition(":")
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        await asyncio.get_running_loop().sock_connect(slow, (host, int(port)))
        name = None if tls is None else host
        opened = asyncio.open_connection(sock=slow, limit=1024, ssl=tls, server_hostname=name)
        return ThriftClient(*await opened, COMPACT)

    async def is_hung_up(self, reader: asyncio.StreamReader, *, within_s: float = 30) -> bool:
        """Return whether the other end closes a connection, whatever it sends before."""
        with suppress(ConnectionError):
            async with asyncio.timeout(within_s):
                while await reader.read(65_536):
                    pass
        return True

    def errors(self) -> str:
        """Return what all processes wrote to stderr so far."""
        return "".join(child.err for child in self.running)

    def has_traceback(self) -> bool:
        """Return whether any process wrote a traceback."""
        return "Traceback (most recent call last)" in self.errors()

    def _started(self, child: Child) -> Child:
        self.running.append(child)
        return child

    def _write(self, what: str, settings: dict[str, Any]) -> str:
        name = f"{what}-{len(self.running)}.yaml"
        (self.folder / name).write_text(yaml.safe_dump(settings))
        return name


def token_settings(*names: str, rules: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return settings with a principal and a token of each name, and access *rules*."""
    tokens = [{"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()} for name in names]
    return {"tokens": tokens, **({} if rules is None else {"access": rules})}


def rss_bytes(child: Child) -> int:
    """Return the resident memory of a process."""
    pages = Path(f"/proc/{child.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def processor_s(child: Child) -> float:
    """Return the seconds of processor time that a process has used."""
    stat = Path(f"/proc/{child.process.pid}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
