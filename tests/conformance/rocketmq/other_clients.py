"""RocketMQ's clients in other languages than Java, each as a program with the same interface.

``PROGRAM send NAMESERVER TOPIC GROUP COUNT`` sends messages of four keys in turn, each key to a
queue of the program's choice, tagged ``even`` and ``odd``, and prints a line at the end;
``concurrent`` or ``orderly NAMESERVER TOPIC GROUP EXPRESSION`` prints handled messages until
killed. Go's also has ``transactions``. All downloads have a hash: ``requirements.txt``, ``go.sum``
and ``package-lock.json`` beside the programs.
"""

from __future__ import annotations

import asyncio
import platform
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from testkit.missing_tools import without
from testkit.processes import ROOT

_SOURCES = ROOT / "tests/conformance/rocketmq"
_BUILD = ROOT / "build/rocketmq"
_LIMIT_S = 300


def _cpp() -> Sequence[str | Path]:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        without("the wheel of RocketMQ's C++ client is for Linux on x86-64")
    installed = _BUILD / "cpp"
    if not (installed / "rocketmq").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pinned = [
            "--require-hashes",
            "--no-deps",
            "--requirement",
            _SOURCES / "cpp/requirements.txt",
        ]
        _run([*pip, "--target", installed, *pinned])
    program = _SOURCES / "cpp/program.py"
    with_wheel = f"import runpy, sys; sys.path.insert(0, {str(installed)!r}); "
    return [sys.executable, "-c", f"{with_wheel}runpy.run_path({str(program)!r})"]


def _go() -> Sequence[str | Path]:
    if shutil.which("go") is None:
        without("go not found: install golang-go")
    program = _BUILD / "go/program"
    _run(["go", "build", "-mod=readonly", "-o", program, "."], folder=_SOURCES / "go")
    return [program]


def _node() -> Sequence[str | Path]:
    if shutil.which("npm") is None:
        without("npm not found: install nodejs and npm")
    folder = _BUILD / "node"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json", "program.js"):
        shutil.copy(_SOURCES / "node" / name, folder / name)
    if not (folder / "node_modules/ali-ons").is_dir():
        _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder=folder)
    return ["node", folder / "program.js"]


def _run(command: Sequence[str | Path], *, folder: Path | None = None) -> None:
    """Run it twice if needed, for network failures; raises AssertionError with its output."""
    for last in (False, True):
        done = subprocess.run(
            [*map(str, command)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        if done.returncode == 0:
            return
        assert not last, f"{command[0]} ended with {done.returncode}: {done.stdout[-3000:]}"


PROGRAMS: dict[str, Callable[[], Sequence[str | Path]]] = {
    "cpp": cache(_cpp),
    "go": cache(_go),
    "node": cache(_node),
}


@dataclass(slots=True)
class Client:
    """A client process, and its lines."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)  # other output, for failures

    @property
    def handled(self) -> list[dict[str, Any]]:
        """Return handled messages, in order."""
        return [each for each in self.lines if "body" in each]


@asynccontextmanager
async def running(language: str, *arguments: object) -> AsyncIterator[Client]:
    """Run the program of *language*; kill it at the end."""
    command = await asyncio.to_thread(PROGRAMS[language])
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        *map(str, arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=None,
    )
    client = Client()
    assert process.stdout is not None
    reading = asyncio.ensure_future(_read(process.stdout, client))  # noqa: TID251
    try:
        yield client
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reading


async def _read(stream: asyncio.StreamReader, client: Client) -> None:
    async for line in stream:
        try:
            client.lines.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            client.said.append(line.decode(errors="replace"))
