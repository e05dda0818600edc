"""Starts clients of each kind: orderlane's Python clients, imitations of DDMQ's, and other
languages.

Those of other languages are the real clients in their conformance programs
(``tests/conformance/clients``), whose handlers follow a message's body and write histories.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.history.reader import event_of
from testkit.processes import Child, Children, wait_until
from testkit.thin_clients.languages import LANGUAGES, Language, run
from tests.chaos.consumer import KINDS
from tests.conformance.clients.gateway_play import clock_offset_ns

#: Languages with their own programs. Python's kinds are in ``consumer.KINDS``.
OTHERS = {each.name: each for each in LANGUAGES if each.name != "python"}
_READY_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientStart:
    """Arguments of a client."""

    kind: str
    group: str
    name: str
    proxies: Sequence[str]
    histories: Path
    orders: Path
    slow_s: float
    """Time of its handlers while they are slow; 0: never slow."""


def start_client(children: Children, start: ClientStart, *, cured: bool) -> Child:
    """Start a client; returns once it can be stopped. Blocks."""
    if start.kind in OTHERS:
        return _start_other(children, OTHERS[start.kind], start, cured=cured)
    child = children.start_module(
        *("tests.chaos.consumer", "--kind", start.kind, "--group", start.group),
        *("--name", start.name, "--proxies", ",".join(start.proxies)),
        *("--history", start.histories, "--orders", start.orders, "--slow-s", start.slow_s),
    )
    child.ready(within_s=_READY_S)
    return child


def _start_other(
    children: Children, language: Language, start: ClientStart, *, cured: bool
) -> Child:
    """Start a client of another language. *cured*: its handlers do nothing, whatever the body."""
    history = start.histories / f"{start.name}.jsonl"
    options = {
        "servers": ",".join(start.proxies),
        "group": start.group,
        "concurrency": 8,
        "client_id": start.name,
        "quiet": True,
        **({} if cured else {"work_ms": [0, 20]}),
        "history": str(history),
        "node": start.name,
        "clock_offset_ns": clock_offset_ns(),
    }
    child = children.start_command(language.name, [*language.program(), json.dumps(options)])
    wait_until(
        lambda: _has_started(history) or not child.running,
        within_s=_READY_S,
        what=f"the start of {start.name}",
    )
    assert child.running, f"{start.name} ended with {child.process.returncode}: {child.err}"
    return child


def _has_started(history: Path) -> bool:
    if not history.exists():
        return False
    with history.open("rb") as lines:
        return event_of(lines.readline()) is not None


def missing(kinds: Sequence[str]) -> list[str]:
    """Return which clients of *kinds* cannot be built here, and why: one sentence each."""
    wrong = [kind for kind in kinds if kind not in OTHERS and kind not in KINDS]
    found = [f"{kind}: no such kind of client" for kind in wrong]
    for language in (OTHERS[kind] for kind in dict.fromkeys(kinds) if kind in OTHERS):
        if absent := language.missing:
            found.append(f"{language.name}: {', '.join(absent)} not installed")
        elif old := language.too_old:
            found.append(f"{language.name}: {old}")
    return found


def build(kinds: Sequence[str]) -> None:
    """Build the programs of *kinds*. Raises BuildFailed."""
    for language in (OTHERS[kind] for kind in dict.fromkeys(kinds) if kind in OTHERS):
        run(language, language.build)
