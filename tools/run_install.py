"""``python -m tools.run_install VENV``: what ``make up`` and ``make demo`` need, with progress.

It runs before anything is installed, so it imports the standard library only. uv installs if it is
there; pip if not, or if uv fails, which does not read pip's settings, such as an index. Both
install only files whose SHA-256 is in ``requirements/``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TextIO

ROOT = Path(__file__).resolve().parents[1]
#: Files of requirements, in order: the tools that build packages come first.
FILES = ("build", "demo")
_SHOWN_LINES = 20

_PIN = re.compile(r"^([\w.-]+)==", re.MULTILINE)
_BASE = re.compile(r"^-r (\S+)\.txt$", re.MULTILINE)
_STARTED = re.compile(r"(?:Collecting|Ignoring) ([\w.-]+)")
_STEP = re.compile(r"\s*(Building wheel for [\w.-]+|Installing collected packages)")


class InstallError(Exception):
    """A command failed; the text has the end of its output."""


def packages_in(name: str) -> int:
    """Return the number of packages in a file of requirements and those that it extends."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return len(_PIN.findall(text)) + sum(map(packages_in, _BASE.findall(text)))


def commands(python: Path, uv: str | None) -> list[tuple[list[str], int]]:
    """Return the commands of an installation, each with the number of packages that it installs."""
    if uv is None:
        install = [str(python), "-m", "pip", "--disable-pip-version-check", "install"]
        install += ["--progress-bar", "off"]
    else:
        install = [uv, "pip", "install", "--python", str(python)]
    pinned = [*install, "--require-hashes", "--no-deps", "--no-build-isolation"]
    made = [([*pinned, "-r", f"requirements/{name}.txt"], packages_in(name)) for name in FILES]
    here = ["--no-index", "--no-deps", "--no-build-isolation", "--editable", "."]
    return [*made, ([*install, *here], 1)]


def progress(lines: Iterator[str], packages: int) -> Iterator[str]:
    """Yield a short text for each package and step that pip reports in *lines*."""
    started = 0
    for line in lines:
        if (found := _STARTED.match(line)) is not None and started < packages:
            started += 1
            yield f"{started}/{packages} {found[1]}"
        elif (step := _STEP.match(line)) is not None:
            yield step[1][:1].lower() + step[1][1:]


def run(command: Sequence[str], packages: int, out: TextIO) -> None:
    """Run pip and show its progress: in one line of a terminal, otherwise in several.

    Raises InstallError.
    """
    end: deque[str] = deque(maxlen=_SHOWN_LINES)
    begin, finish = ("\r\033[K  ", "") if out.isatty() else ("  ", "\n")
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        assert child.stdout is not None

        def told(lines: IO[str]) -> Iterator[str]:
            for line in lines:
                end.append(line)
                yield line

        for text in progress(told(child.stdout), packages):
            print(begin + text, end=finish, file=out, flush=True)
    if out.isatty():
        print("\r\033[K", end="", file=out, flush=True)
    if child.returncode:
        raise InstallError(f"{' '.join(command)} failed:\n{''.join(end)}")


def install(venv: Path, out: TextIO) -> None:
    """Create *venv* unless it exists, and install. Raises InstallError."""
    began_s = time.monotonic()
    python = venv / "bin" / "python"
    uv = shutil.which("uv")
    count = sum(packages for _, packages in commands(python, None))
    print(f"installing {count} packages into {venv}, 165 MB, once", file=out, flush=True)
    if not python.exists():
        run([sys.executable, "-m", "venv", str(venv)], 0, out)
    if uv is None or not _by_uv(python, uv, out):
        for command, packages in commands(python, None):
            run(command, packages, out)
    print(f"installed in {time.monotonic() - began_s:.0f} s", file=out, flush=True)


def _by_uv(python: Path, uv: str, out: TextIO) -> bool:
    """Install by uv, which shows its own progress; return False if it failed."""
    for command, _ in commands(python, uv):
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            print("uv failed: installing by pip", file=out, flush=True)
            return False
    return True


def main() -> None:
    """Install into the folder that is named by the argument."""
    try:
        install(Path(sys.argv[1]).absolute(), sys.stderr)
    except InstallError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
