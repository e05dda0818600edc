"""Commands in the folder of a project, and programs that run until SIGTERM."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from testkit.missing_tools import without
from testkit.processes import Child, wait_until
from testkit.thin_clients.languages import LANGUAGES
from thin_client import Outgoing, Producer

_LIMIT_S = 900
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
#: Orders of two customers as the pages' programs expect them. One message has no order and is
#: rejected, which parks its key.
ORDERS = (
    ("a", '{"id": 1, "cents": 100}'),
    ("b", '{"id": 2, "cents": 200}'),
    ("a", '{"id": 3, "cents": 300}'),
    ("c", "no order"),
    ("b", '{"id": 4, "cents": 400}'),
    ("a", '{"id": 5, "cents": 500}'),
)
#: What the programs print: order 3 is refused the first time.
PRINTED = {"a": ["1", "3", "5"], "b": ["2", "4"]}


def need(language: str) -> None:
    """Skip or fail the test if a tool of *language* is missing or too old."""
    (found,) = (each for each in LANGUAGES if each.name == language)
    if found.missing:
        without(f"{language}: its tools are missing: apt-get install {' '.join(found.missing)}")
    if found.too_old:
        without(f"{language}: {found.too_old}")


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of this process without those of the gateway, and *more*."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ORDERLANE_", "PYTHON"))
    }
    return {**own, "MAVEN_OPTS": "-Xmx256m", **(more or {})}


def run(command: str, folder: Path, more: Mapping[str, str] | None = None) -> str:
    """Run a command of a shell to its end; return what it printed. Fails unless it succeeds."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment(more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return _COLOURS.sub("", done.stdout)


def assert_quick_start(output: str, *, keys: int) -> None:
    """Assert ten lines, those of each customer in the order of their numbers."""
    lines = [line for line in output.splitlines() if line.startswith("customer-")]
    numbers: dict[str, list[int]] = {}
    for line in lines:
        key, _, rest = line.partition(" ")
        numbers.setdefault(key, []).append(int(re.findall(r"\d+", rest)[-1]))
    assert sum(map(len, numbers.values())) == 10, output
    assert len(numbers) == keys, output
    assert all(each == sorted(each) for each in numbers.values()), output


def serve_orders(
    command: Sequence[str],
    folder: Path,
    gateway: str,
    orders: Sequence[tuple[str, str]] = ORDERS,
) -> None:
    """Start a program that handles orders, send *orders*, and stop it when it has printed those
    that are in PRINTED: key, then number.
    """
    child = Child(list(command), folder / "program", environment({"PYTHONUNBUFFERED": "1"}))
    try:
        with Producer(gateway) as producer:
            producer.send_batch([Outgoing("orders", body, key=key) for key, body in orders])
        expected = sum(map(len, PRINTED.values()))
        wait_until(
            lambda: len(child.out) >= expected or not child.running,
            within_s=120,
            what=f"{expected} lines of {command}; it wrote {child.out} and {child.err[-3000:]}",
        )
        printed: dict[str, list[str]] = {}
        for line in child.out:
            key, _, rest = line.partition(" ")
            printed.setdefault(key, []).append(re.findall(r"\d+", rest)[0])
        assert printed == PRINTED, child.err[-3000:]
        assert child.terminate() in (0, 143), child.err[-3000:]  # 143: what a JVM returns
    finally:
        if child.running:
            child.kill()
