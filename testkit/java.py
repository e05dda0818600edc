"""Java for the tests: jars from Maven and small programs, kept under ``build/``."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from testkit.missing_tools import without
from testkit.processes import ROOT

POM = ROOT / "testkit/maven/rocketmq.xml"
_BUILD = ROOT / "build/rocketmq"
_LIMIT_S = 300

#: Internals that Apache RocketMQ accesses and newer Java versions close.
OPENS = [
    option
    for package in ("java.nio", "sun.nio.ch", "java.lang", "jdk.internal.ref")
    for option in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")
]


def require_java() -> None:
    """Skip the test without Java or Maven; fail it where all tools are required."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        without(f"{', '.join(missing)} not found: install a JDK of version 17 or newer, and Maven")


def rocketmq_jars(version: str) -> Path:
    """Return the folder with the jars of Apache RocketMQ *version*; downloaded once."""
    return jars(POM, _BUILD / version / "lib", f"-Drocketmq.version={version}")


def jars(pom: Path, folder: Path, *options: str) -> Path:
    """Return *folder* with the dependencies of *pom*; downloaded once, and again when it
    changes.
    """
    if not _made_from(folder, pom.read_bytes()):
        command = ["mvn", "-q", "-B", "-f", pom, *options]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        try:
            _run(command)
        except (AssertionError, subprocess.TimeoutExpired):  # network failures are often temporary
            _run(command)
        _now_made_from(folder, pom.read_bytes())
    return folder


def programs(sources: Iterable[Path], libraries: str, folder: Path, *, release: int = 11) -> str:
    """Return the class path of *sources*, compiled into *folder* for that *release* of Java, and of
    the *libraries* that they need.
    """
    files = sorted(sources)
    content = b"".join(source.read_bytes() for source in files)
    # One folder for each state of the sources; running programs keep theirs.
    classes = folder / f"classes-{hashlib.sha256(content).hexdigest()[:12]}"
    if not classes.exists():
        folder.mkdir(parents=True, exist_ok=True)
        compiled = Path(tempfile.mkdtemp(dir=folder))
        options = ["-nowarn", "--release", release, "-cp", libraries, "-d", compiled]
        _run(["javac", *options, *files])
        with suppress(OSError):  # another process was faster
            compiled.rename(classes)
    return f"{classes}:{libraries}"


def java(
    class_path: str, main: str, *arguments: object, heap: str = "96m", quick_start: bool = True
) -> list[str]:
    """Return the command that runs class *main* for a test: with a small heap and a quick start.

    Without *quick_start* the virtual machine has its defaults: the whole heap from the start, and
    full optimization of hot code.
    """
    light = ["-Xms32m", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options = light if quick_start else [f"-Xms{heap}", f"-Xmx{heap}"]
    return ["java", *options, *OPENS, "-cp", class_path, main, *map(str, arguments)]


def _made_from(folder: Path, content: bytes) -> bool:
    stamp = folder.with_suffix(".stamp")
    return stamp.exists() and stamp.read_text() == hashlib.sha256(content).hexdigest()


def _now_made_from(folder: Path, content: bytes) -> None:
    folder.with_suffix(".stamp").write_text(hashlib.sha256(content).hexdigest())


def _run(command: list[object]) -> None:
    done = subprocess.run(
        [str(each) for each in command],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
