"""The environment in which the commands of one document run: a folder, and a gateway.

Replacements: the usual loopback ports by those of local servers; ``/tmp`` and the home folder by
the page's folder; ``/path/to/checkout`` by this checkout.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from bench.frame.forked import Forked
from testkit.processes import ROOT, Child, Children, Ended, wait_until
from tests.integration.documents.local_addresses import ADDRESSES, LISTENING
from tests.support.cli_words import Typed, root, typed
from tests.support.doc_commands import is_simple, parts_of
from tests.support.process_site import ask, look
from thin_client import Outgoing, Producer

#: Documented ports by their names in a ready line.
PORTS = {"thrift": "9713", "http": "9714", "nameserver": "9876", "broker": "10911"}
#: Documented names of other machines.
_NAMESERVER = "nameserver:9876"
#: Documented names of the local client.
CLIENT = "host-7"
_NAMES = {port: name for name, port in PORTS.items()}
_USUAL = re.compile(r"\b(?:127\.0\.0\.1|localhost):(9713|9714|9876|10911)\b")
#: Shorter times than the defaults, longer than a busy machine stalls; groups can be stored.
SETTINGS = """
group_store: nameserver
lock: {renewal_s: 0.5, trust_s: 5, broker_lock_expiry_s: 6, request_timeout_s: 2}
commit_every_s: 0.2
ownership: {drain_s: 1}
"""
BROKER = "{lock_expiry_s: 6, segment_bytes: 8388608}"
_KEYS = re.compile(r"/api/groups/(?P<group>[\w-]+)/topics/[\w-]+/keys/(?P<verb>\w+)")
#: A command with redirected output, which needs a shell.
_INTO = re.compile(r"(.*[^&|<>\s])\s+(>>?\s*\S+)\s*(?:#.*)?")
#: Commands whose effects a shell keeps for later commands.
_KEPT = ("cd", "export")
_MODULE = (sys.executable, "-m", "tests.integration.documents.doc_programs")


@dataclass(slots=True)
class DocSite:
    """The environment of a page. ``prelude``: earlier commands whose effects the shell keeps."""

    folder: Path
    children: Children
    addresses: dict[str, str] = field(default_factory=dict)
    prelude: list[str] = field(default_factory=list)
    ready: dict[str, Any] = field(default_factory=dict)
    """Return the ready line of the newest server."""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    serving: dict[str, Child] = field(default_factory=dict)
    _handlers: set[tuple[str, ...]] = field(default_factory=set)
    _second: dict[str, str] = field(default_factory=dict)

    # ---- what the page types ---------------------------------------------------------------------

    def here(self, text: str) -> str:
        """Replace documented addresses and folders in *text*."""
        for port in _USUAL.findall(text):
            self.at(_NAMES[port])
        text = _USUAL.sub(lambda found: self.addresses[found[1]], text)
        if _NAMESERVER in text:
            text = text.replace(_NAMESERVER, self.at("nameserver"))
        text = re.sub(r"(?<![\w.])/tmp/", f"{self.folder}/", text)
        return text.replace("/path/to/checkout", str(ROOT)).replace("venv/bin/python", "python")

    def reach(self, command: Typed) -> None:
        """Start the servers that the command contacts by the default of an option."""
        for value in command.parameters.values():
            if isinstance(value, str) and (found := _USUAL.fullmatch(value)):
                self.at(_NAMES[found[1]])

    def serve(self, words: tuple[str, ...]) -> Child:
        """Start the server ``orderlane WORDS`` and wait until it is ready; an earlier server of the
        same data is stopped first.
        """
        name, data = words[0], typed(words).parameters.get("data")
        name = f"{name} {data}" if name in ("up", "broker") else f"{name} {next(self.numbers)}"
        self._end(name)
        child = self._start(words[0], ("orderlane", *words))
        self.ready = ready = child.ready(within_s=60)
        self.addresses |= {PORTS[each]: at for each, at in ready.items() if each in PORTS}
        self.serving[name] = child
        return child

    def _end(self, name: str) -> None:
        """Stop a running server with SIGTERM and check its exit."""
        if (child := self.serving.pop(name, None)) is not None:
            assert child.terminate() == 0, child.err

    def run(self, command: str, *, within_s: float = 60) -> Ended:
        """Run one command to its end, as typed."""
        (first, *_) = parts_of(command)
        if first.program in ("orderlane", "curl"):
            if self._plain(command):
                return self._run_warm(first.words, within_s)
            into = _INTO.fullmatch(command)
            if into is not None and self._plain(into[1]):
                ended = self._run_warm(first.words, within_s)
                written = self._shell(f"cat {into[2]}", within_s, ended.out)
                return Ended(ended.code or written.code, written.out, ended.err + written.err)
        ended = self._shell("\n".join([*self.prelude, command]), within_s)
        if first.program in _KEPT:
            self.prelude.append(command)
        return ended

    def _run_warm(self, words: tuple[str, ...], within_s: float) -> Ended:
        child = self._start(words[0], words)
        code = child.wait(within_s=within_s)
        return Ended(code, child.output, child.err)

    def _shell(self, script: str, within_s: float, stdin: str = "") -> Ended:
        done = subprocess.run(
            ["bash", "-ec", script],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=within_s,
            cwd=self.folder,
            env=self._environment() | {"PATH": f"{self._programs()}:/usr/bin:/bin"},
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def start(self, command: str) -> Child:
        """Start a command that does not end by itself."""
        (first, *_) = parts_of(command)
        if first.program == "orderlane" and self._plain(command):
            return self._start(first.program, first.words)
        env = self._environment() | {"PATH": f"{self._programs()}:/usr/bin:/bin"}
        text = "\n".join([*self.prelude, f"exec {command}"])
        return self.children.cold.start_command("shell", ["bash", "-ec", text], **env)

    def start_python(self, code: str) -> Child:
        """Start a program of the page in its folder."""
        name = f"program-{next(self.numbers)}.py"
        (self.folder / name).write_text(self.here(code))
        command = [sys.executable, name]
        return self.children.cold.start_command("python", command, **self._environment())

    def _plain(self, command: str) -> bool:
        return not self.prelude and is_simple(command)

    def _start(self, name: str, words: tuple[str, ...]) -> Child:
        return self.children.start_command(name, [*_MODULE, *words], **self._environment())

    def _environment(self) -> dict[str, str]:
        own = orjson.dumps(self.addresses).decode()
        paths = {"HOME": str(self.folder), "PYTHONPATH": str(ROOT)}
        return {**paths, "PYTHONUNBUFFERED": "1", ADDRESSES: own}

    def _programs(self) -> Path:
        """Create a folder with the programs for shells."""
        folder = self.folder / ".programs"
        if not folder.exists():
            folder.mkdir()
            for name, words in {
                **{name: (*_MODULE, name) for name in ("orderlane", "curl")},
                **dict.fromkeys(("python", "python3"), (sys.executable,)),
            }.items():
                (folder / name).write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
                (folder / name).chmod(0o755)
        return folder

    # ---- what is there besides -------------------------------------------------------------------

    def gateway(self) -> None:
        """Start all servers in one process, unless the page has started one of them."""
        if not any(name.startswith("up ") for name in self.serving):
            (self.folder / "gateway.yaml").write_text(SETTINGS)
            (self.folder / "gateway-broker.yaml").write_text(BROKER)
            files = ("--settings", "gateway.yaml", "--broker-settings", "gateway-broker.yaml")
            self.serve(("up", "--data", "gateway-data", *files))

    def at(self, name: str) -> str:
        """Return the address of ``thrift``, ``http``, ``nameserver`` or ``broker``."""
        if PORTS[name] not in self.addresses:
            self.gateway()
        return self.addresses[PORTS[name]]

    def second_proxy(self, group: str) -> dict[str, str]:
        """Return the address of another proxy at which *group* has a client, too."""
        if not self._second:
            where = ("--settings", "gateway.yaml", "--nameserver", self.at("nameserver"))
            self._second = self._start("proxy", ("orderlane", "proxy", *where)).ready(within_s=60)
        self._handle(self._second["thrift"], group, "orders")
        return self._second

    def has_group(self, group: str) -> bool:
        """Return whether the group's settings are stored."""
        return bool(self.look("/api/config")["store"]["versions"].get(group))

    def group(self, group: str, *, topic: str | None = None) -> None:
        """Create the group, with a client that follows the instructions in messages.

        *topic*: default ``orders``, or a topic of an existing group that does not have that one.
        """
        topic = topic or self._topic_of(group)
        if self.look("/api/config")["store"] is not None and not self.has_group(group):
            topics = [{"name": topic, "order_key": "KEY", "on_exhausted": "dead_letter"}]
            self.change(f"/api/groups/{group}", method="PUT", settings={"topics": topics})
        self.send(topic, "hello")  # creates the topic
        self._handle(self.at("thrift"), group, topic)
        wait_until(
            lambda: self.owned(group, topic), within_s=30, what=f"{group} owns queues of {topic}"
        )

    def _topic_of(self, group: str) -> str:
        queues = self.look("/api/groups").get(group, {"queues": []})["queues"]
        topics = {each["topic"] for each in queues}
        return "orders" if not topics or "orders" in topics else min(topics)

    def owned(self, group: str, topic: str) -> set[str]:
        """Return the group's queues that the proxy owns."""
        queues = self.look("/api/groups").get(group, {"queues": []})["queues"]
        return {each["queue"] for each in queues if each["topic"] == topic}

    def _handle(self, *where: str) -> None:
        if where not in self._handlers:
            self._handlers.add(where)
            self.children.start_module("tests.integration.documents.doc_handler", *where, CLIENT)

    def send(self, topic: str, key: str, act: str = "", *, copies: int = 1, **more: int) -> None:
        """Send a message of *key* that makes the client do *act*. *more*: further fields of the
        body.
        """
        known = {"act": act, "id": 7, "customer": key, "order": {"id": key}}
        body = orjson.dumps(known | more)
        with Producer(self.at("thrift")) as producer:
            producer.send_batch([Outgoing(topic, body, key=key) for _ in range(copies)])

    def look(self, path: str) -> Any:
        """GET from the proxy."""
        return look(self.at("http"), path)

    def change(self, path: str, *, method: str = "POST", **asked: Any) -> Any:
        """Send POST or PUT to the proxy, which must succeed."""
        return ask(self.at("http"), path, method=method, **asked)


def understood(command: str) -> Typed | None:
    """Return the command's first part if it is one of our verbs or sends a request as a verb
    does.
    """
    (first, *_) = parts_of(command)
    if first.program == "orderlane":
        return typed(first.words[1:])
    asked = _KEYS.search(command) if first.program == "curl" else None
    if asked is None:
        return None
    body = re.search(r'"key": *"([^"]*)"', command)
    said = {"group": asked["group"], "key": body and body[1]}
    return Typed(f"key {asked['verb']}" if body else f"keys {asked['verb']}", said, frozenset())


def serves(command: str) -> tuple[str, ...] | None:
    """Return the words after ``orderlane`` of a server; None for other commands."""
    (first, *_) = parts_of(command)
    if first.words[:2] == ("make", "up"):
        return ("up",)
    is_ours = first.program == "orderlane" and first.words[1] in LISTENING
    return first.words[1:] if is_ours else None


@contextmanager
def doc_site(folder: Path) -> Iterator[DocSite]:
    """Run a site that stops all it started when the context ends; verbs are imported once for
    all.
    """
    root()
    with Children(folder, Forked) as children:
        yield DocSite(folder, children)
    shutil.rmtree(folder / "gateway-data", ignore_errors=True)
