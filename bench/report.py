"""Output of every case: one JSON file with its runs, the machine and the versions."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).parents[1]


def spread(values: Sequence[float], *, digits: int = 3) -> dict[str, float]:
    """Return median, minimum and maximum of *values*."""
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
    }


def shown(figures: Mapping[str, float], *, digits: int = 2) -> str:
    """Return a spread as text: the median and the range."""
    text = f"{figures['median']:,.{digits}f}"
    if figures["min"] == figures["max"]:
        return text
    return f"{text} ({figures['min']:,.{digits}f} to {figures['max']:,.{digits}f})"


def write_result(
    path: Path,
    case: str,
    *,
    command: str,
    options: Mapping[str, Any],
    summary: Sequence[Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Write the result of one call of *case* and return it; *command* repeats the call."""
    result = {
        "bench": case,
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "options": options,
        "summary": summary,
        "runs": runs,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return result


def machine() -> str:
    """Return the machine in one line, without its host name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} x {_processor()}, {memory:.0f} GiB, {platform.system()}"
        f" {platform.release().partition('-')[0]}, Python {platform.python_version()}"
    )


def versions() -> dict[str, str]:
    """Return the versions of orderlane and of the libraries that matter for speed."""
    named = ("orderlane", "thrift", "uvloop", "orjson")
    return {**{name: metadata.version(name) for name in named}, "commit": commit()}


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # another system than Linux
    return platform.machine()


def commit() -> str:
    """Return git's description of this source tree."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=9"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"
