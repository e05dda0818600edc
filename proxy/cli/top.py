"""``orderlane top``: a live view of groups and their hottest keys."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from broker_core.clock import now_ns, wall_ms
from proxy.cli.connect import NoAnswerInTime, ask_proxy, one_of
from proxy.cli.options import DEFAULT_HTTP, finite
from proxy.cli.owner_requests import path_of
from proxy.cli.top_frame import HotKey, Look, figures_of, frame, hot_key_of
from proxy.errors import OrderlaneError

_KEYS = 5
#: Time for the owners on record, which a silent broker delays.
_OWNERS_WITHIN_S = 1.0
_PIPE_WIDTH, _PIPE_HEIGHT = 80, 200


def top(
    group: Annotated[str | None, typer.Argument(help="show only this group")] = None,
    once: Annotated[bool, typer.Option("--once", help="print one frame and exit")] = False,
    every: Annotated[
        float, typer.Option(help="refresh interval, s", min=0.1, max=3600, callback=finite)
    ] = 1.0,
    http: Annotated[
        str, typer.Option("--http", help="host:port of a proxy's HTTP port; comma-separated list")
    ] = DEFAULT_HTTP,
) -> None:
    """Show groups, their lag and throughput, queue owners and the hottest keys, until q is pressed.

    Includes the proxies at --http and the owners of all other queues. Column S: P paused, R rate
    limited, C no client. If stdout is not a terminal, one frame is printed.
    """
    asked = _Proxies([each.strip() for each in http.split(",") if each.strip()], group)
    console = Console(highlight=False, markup=False)
    if once or not sys.stdout.isatty() or console.is_dumb_terminal:
        first = asked.look()
        _wait(every, None)
        lines = frame(asked.look(), first, width=_PIPE_WIDTH, height=_PIPE_HEIGHT)
        typer.echo("\n".join(lines))
        return
    before = None
    with _keys() as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            look = asked.look(tolerant=before is not None)
            lines = frame(look, before, width=console.width, height=console.height)
            live.update(Text("\n".join(lines), no_wrap=True), refresh=True)
            before = look
            if _wait(every, keyboard):
                return


@dataclass(slots=True)
class _Told:
    """The answers of one proxy; ``why``: an error instead of what is missing."""

    address: str
    groups: dict[str, Any] | None = None
    keys: list[HotKey] = field(default_factory=list)
    owners: set[str] = field(default_factory=set)
    why: str = ""


class _Proxies:
    """The given proxies, and the owners of other queues that they report."""

    def __init__(self, addresses: list[str], group: str | None) -> None:
        self._addresses = addresses
        self._group = group

    def look(self, *, tolerant: bool = False) -> Look:
        """Query all proxies.

        Raises OrderlaneError if none answers or none has the group, unless *tolerant*.
        """
        at_ns = now_ns()
        groups: list[tuple[str, dict[str, Any]]] = []
        keys: list[HotKey] = []
        away: list[tuple[str, str]] = []
        for each in asyncio.run(self._ask_all()):
            if each.why:
                away.append((each.address, each.why))
            if each.groups is not None:
                groups.append((each.address, each.groups))
            keys += each.keys
        if not tolerant:
            self._check(groups, away)
        hottest = sorted(keys, key=lambda each: (-each.share, each.key, each.queue))[:_KEYS]
        return Look(
            at_ns=at_ns,
            time=datetime.now().astimezone().strftime("%H:%M:%S"),
            groups=figures_of(groups),
            keys=tuple(hottest),
            away=tuple(away),
            wall_ms=wall_ms(),
        )

    async def _ask_all(self) -> list[_Told]:
        """Ask the given proxies at once, then the owners that they name."""
        given = [asyncio.to_thread(one_of, each) for each in self._addresses]
        left = list(dict.fromkeys(await asyncio.gather(*given)))
        asked, told = set(left), list[_Told]()
        while left:
            answers = await asyncio.gather(*(asyncio.to_thread(self._ask, each) for each in left))
            told += answers
            left = sorted({owner for each in answers for owner in each.owners} - asked)
            asked.update(left)
        return told

    def _ask(self, address: str) -> _Told:
        """Ask one proxy; what it does not answer is missing."""
        told = _Told(address)
        try:
            told.groups = self._groups(address)
            told.keys = list(self._hot(address, told.groups))
            told.owners = self._owners(address, told.groups)
        except OrderlaneError as error:
            told.why = str(error)
        return told

    def _check(self, groups: list[Any], away: list[tuple[str, str]]) -> None:
        if not groups:
            raise OrderlaneError("\n".join(why for _, why in away))
        if self._group is not None and not any(found for _, found in groups):
            raise OrderlaneError(
                f"there is no group {self._group!r} at {', '.join(at for at, _ in groups)}: see"
                " orderlane groups ls"
            )

    def _groups(self, address: str) -> dict[str, Any]:
        found = dict(orjson.loads(ask_proxy(address, path_of("groups"))))
        if self._group is None:
            return found
        return {self._group: found[self._group]} if self._group in found else {}

    def _hot(self, address: str, groups: dict[str, Any]) -> Iterator[HotKey]:
        for name, group in groups.items():
            for topic in {queue["topic"] for queue in group["queues"]}:
                if topic.startswith("%"):
                    continue
                path = path_of("groups", name, "topics", topic, "keys", "hot")
                for row in orjson.loads(ask_proxy(address, f"{path}?limit={_KEYS}")):
                    yield hot_key_of(name, row)

    def _owners(self, address: str, groups: dict[str, Any]) -> set[str]:
        """Return the addresses of owners: those that the proxy knows, and those on record, unless
        it has to wait for a broker.
        """
        others = (row for group in groups.values() for row in group.get("others", ()))
        known = {row["http"] for row in others if row["owned"] == "elsewhere" and row["http"]}
        try:
            answer = ask_proxy(address, path_of("owners"), timeout_s=_OWNERS_WITHIN_S)
        except NoAnswerInTime:
            return known
        rows = orjson.loads(answer)["queues"]
        return known | {
            row["http"]
            for row in rows
            if row["state"] == "owned" and row["http"] and self._group in (None, row["group"])
        }


@contextmanager
def _keys() -> Iterator[int | None]:
    """Yield a file descriptor for single key presses; None if stdin is not a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield None
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _wait(seconds: float, keyboard: int | None) -> bool:
    """Wait *seconds*; return True as soon as q is pressed."""
    until_ns = now_ns() + int(seconds * 1e9)
    while (left_ns := until_ns - now_ns()) > 0:
        heard, _, _ = select.select([] if keyboard is None else [keyboard], [], [], left_ns / 1e9)
        if heard and keyboard is not None and os.read(keyboard, 64)[:1] in (b"q", b"Q", b""):
            return True
    return False
