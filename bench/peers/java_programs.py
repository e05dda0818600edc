"""Java consumers and tools below ``java/``: build, start and results.

They run as in production: with a large heap, and Java's defaults for everything else. Missing or
changed programs are built once per process, under ``build/peers``; Maven downloads the libraries.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from bench.frame.figures import Figures
from bench.frame.peer import Work
from bench.frame.progress import Counter, stretch
from bench.peers import order_record
from bench.report import ROOT
from broker_core.clock import now_ns
from proxy.errors import OrderlaneError
from testkit.java import jars, java, programs, rocketmq_jars
from testkit.thin_clients.languages import LANGUAGES
from testkit.thin_clients.languages import run as run_commands

HEAP = "1g"
_SOURCES = Path(__file__).parent / "java"
_BUILD = ROOT / "build/peers"
_RELEASE = 17
#: Fractions of a run, without the start of the virtual machine and the tail.
_FIRST, _LAST = 0.2, 0.9


class PeerFailed(OrderlaneError):
    """A peer failed; the text includes its output."""


@cache
def rocketmq_path(version: str) -> str:
    """Return the class path of programs that use Apache RocketMQ's client."""
    _require_tools()
    return _compiled("rocketmq", f"{rocketmq_jars(version)}/*", version)


@cache
def client_path(name: str) -> str:
    """Return the class path of the programs in the folder *name*, and of the client in its pom."""
    _require_tools()
    return _compiled(name, _jars(name))


@cache
def server_path(name: str) -> str:
    """Return the class path of the server in the pom of the folder *name*."""
    _require_tools()
    return _jars(name)


def jar_files(name: str, properties: Mapping[str, str]) -> list[Path]:
    """Return the jars in the pom of the folder *name*, whose *properties* are these."""
    if shutil.which("mvn") is None:
        raise PeerFailed("mvn not found: the jars of peers need Maven")
    options = [f"-D{key}={value}" for key, value in properties.items()]
    folder = _BUILD.joinpath(name, *properties.values(), "lib")
    return sorted(jars(_SOURCES / name / "pom.xml", folder, *options).glob("*.jar"))


def version_in(name: str) -> str:
    """Return the version in the pom of *name*."""
    found = re.search(
        r"<artifactId>\S+</artifactId>\s*<version>([^<]+)</version>\s*</dependency>",
        (_SOURCES / name / "pom.xml").read_text(),
    )
    assert found is not None
    return found[1]


@cache
def orderlane_path() -> str:
    """Return the class path of programs that use orderlane's Java client, which is built as
    well.
    """
    _require_tools()
    client = next(each for each in LANGUAGES if each.name == "java")
    run_commands(client, client.build)
    target = client.folder / "target"
    libraries = (target / "classpath.txt").read_text().strip()
    return _compiled("orderlane", f"{target / 'classes'}:{libraries}")


def consume(
    class_path: str,
    main: str,
    options: Mapping[str, object],
    *,
    work: Work,
    folder: Path,
    processes: Mapping[str, int],
    ordered: bool,
    within_s: float = 240.0,
) -> Figures:
    """Run consumer *main* until it has handled all messages of *work*, and judge it.

    *processes*: names of other processes whose processor time counts. Raises PeerFailed if the
    consumer ended early, lost messages or, if they are *ordered*, handled them out of order.
    """
    given = {
        **options,
        "messages": work.messages,
        "seed": work.seed,
        "work-us": round(work.work_ms * 1000),
        "least-work-us": round(_least(work) * 1000),
        "record": folder / "record",
        "counter": folder / "handled",
        "within-s": round(within_s),
    }
    with Counter(folder / "handled") as counter:
        process = start(class_path, main, given, folder)
        try:
            part = stretch(
                lambda: counter.value,
                {"client": process.pid, **processes},
                work.messages,
                first=_FIRST,
                last=_LAST,
                within_s=within_s,
                alive=lambda: process.poll() is None,
            )
            process.wait(timeout=60)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            raise PeerFailed(f"{main}: {error}; {printed(main, folder, '.err')}") from error
        finally:
            process.kill()
            process.wait()
    return {**_judged(main, folder, work, ordered=ordered), **part.cpu_us}


def start(
    class_path: str,
    main: str,
    options: Mapping[str, object],
    folder: Path,
    *,
    arguments: Sequence[object] = (),
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start *main*, with its output in ``folder``."""
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = java(class_path, main, *words, *arguments, heap=HEAP, quick_start=False)
    command[1:1] = [f"-Duser.home={folder}"]  # some write logs there
    out, err = (folder / f"{main}{end}" for end in (".out", ".err"))
    with out.open("wb") as out_file, err.open("wb") as err_file:
        return subprocess.Popen(command, stdin=stdin, stdout=out_file, stderr=err_file, cwd=folder)


def clock_ns() -> int:
    """Return what a Java program adds to its clock, which stands still in suspension, to get
    ``now_ns``.
    """
    return now_ns() - time.monotonic_ns()


def printed(main: str, folder: Path, end: str = ".out") -> str:
    """Return the end of the output of *main*."""
    return (folder / f"{main}{end}").read_text(errors="replace")[-1500:]


def _judged(main: str, folder: Path, work: Work, *, ordered: bool) -> dict[str, float | str]:
    said = _last_line(main, folder)
    handlings = order_record.read(folder / "record")
    judgement = order_record.judge(handlings)
    if judgement.distinct != work.messages or (ordered and judgement.faults):
        raise PeerFailed(f"{main}, of {work.messages} messages: {judgement}")
    per_s = order_record.per_second(handlings)
    return {
        "per_s": per_s,
        "seconds": len(handlings) / per_s,
        "steady_per_s": order_record.per_second_between(handlings, _FIRST, _LAST),
        **{f"{name}_each": count / work.messages for name, count in said["figures"].items()},
        "faults": judgement.faults,
        "settings": _listed(said["settings"]),
        "version": _listed(said["versions"]),
    }


def _last_line(main: str, folder: Path) -> dict[str, Any]:
    lines = [line for line in printed(main, folder).splitlines() if line.startswith("{")]
    if not lines:
        raise PeerFailed(f"{main} said nothing; {printed(main, folder, '.err')}")
    said: dict[str, Any] = orjson.loads(lines[-1])
    return said


def _least(work: Work) -> float:
    return work.work_ms if work.least_work_ms is None else work.least_work_ms


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _jars(name: str) -> str:
    return f"{jars(_SOURCES / name / 'pom.xml', _BUILD / name / 'lib')}/*"


def _compiled(name: str, libraries: str, version: str = "") -> str:
    sources = [*(_SOURCES / "shared").glob("*.java"), *(_SOURCES / name).glob("*.java")]
    return programs(sources, libraries, _BUILD / name / version, release=_RELEASE)


def _require_tools() -> None:
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        raise PeerFailed(
            f"{', '.join(missing)} not found: peers need a JDK of version 17 or newer, and Maven"
        )
