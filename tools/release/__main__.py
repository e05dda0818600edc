"""``make release-check``: build the release twice, check it, and list what it consists of.

The files are in ``build/release``: wheels and source archives of orderlane and orderlane-server,
the archives of the clients in other languages, ``orderlane-server.cdx.json`` (the bill of
materials), ``orderlane.provenance.json``, and ``SHA256SUMS``. ``--part`` leaves out the other
languages. Missing tools of a language are reported, and an error with ``ORDERLANE_REQUIRE_ALL=1``.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from packaging.utils import canonicalize_name

from tools.packages.server_sources import write_sources
from tools.pins import ROOT, Pin, installed_or_asked, own_requirements, read_pins
from tools.release import bill_of_materials, builds, clients, distributions
from tools.release.problem import ReleaseError
from tools.release.provenance import provenance

OUTPUT = ROOT / "build" / "release"
BILL = "orderlane-server.cdx.json"
PROVENANCE = "orderlane.provenance.json"
#: What pins the downloads of the builds.
PINNED = (
    "requirements/build.txt",
    "requirements/server.txt",
    "thin_client/go/go.sum",
    "thin_client/java/pom.xml",
    "thin_client/node/package-lock.json",
)
#: Commands that print the versions of tools.
_TOOLS = {"node": "node --version", "java": "java --version", "maven": "mvn --version"}
#: The extras of a server installation, as in the image.
EXTRAS = ("server", "redis", "tracing")
#: Where and how the two builds run: nothing of it may be in the files.
_FIRST = {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "0"}
_SECOND = {"TZ": "Pacific/Auckland", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "4711"}


def main() -> int:
    """Run all checks; return the exit code."""
    parser = argparse.ArgumentParser(prog="make release-check", description=__doc__)
    parser.add_argument("--part", action="store_true", help="only the distributions for Python")
    part = parser.parse_args().part
    try:
        _release(languages=() if part else clients.ALL)
    except ReleaseError as error:
        sys.stderr.write(f"make release-check: {error}\n")
        return 1
    return 0


def _release(*, languages: Sequence[clients.Archives]) -> None:
    epoch = builds.epoch_of(ROOT)
    pyproject = (ROOT / "pyproject.toml").read_text()
    with tempfile.TemporaryDirectory(prefix="orderlane-release-") as name:
        folder = Path(name)
        builds.stage(ROOT, folder / "orderlane")
        write_sources(folder / "orderlane", folder / "orderlane-server")
        tracked = builds.tracked(ROOT).keys()
        expected = distributions.expected(folder / "orderlane", tracked)
        built = {each.name: _build_twice(folder / each.name, each, epoch) for each in expected}
        bill = _bill(pyproject, [each.wheel for each in built.values()], epoch)
        others: dict[str, Path] = {}
        for language in languages:
            others |= _archives_twice(folder / language.language, language)
        if OUTPUT.exists():
            shutil.rmtree(OUTPUT)
        OUTPUT.mkdir(parents=True)
        for file in chain.from_iterable(built.values()):
            shutil.copyfile(file, OUTPUT / file.name)
        for called, file in others.items():
            shutil.copyfile(file, OUTPUT / called)
    (OUTPUT / BILL).write_text(bill)
    (OUTPUT / PROVENANCE).write_text(
        provenance(
            {file.name: _sha256(file) for file in OUTPUT.iterdir()},
            commit=builds.commit(ROOT),
            inputs={path: _sha256(ROOT / path) for path in PINNED},
            tools=_tools(),
            epoch=epoch,
        )
    )
    files = sorted(OUTPUT.iterdir())
    sums = "".join(f"{_sha256(file)}  {file.name}\n" for file in files)
    (OUTPUT / "SHA256SUMS").write_text(sums)
    sys.stdout.write(sums)
    if not builds.is_clean(ROOT):
        _say("tracked files differ from the last commit: commit them before a release")
    _say(f"the files are in {OUTPUT.relative_to(ROOT)}")


def _build_twice(
    sources: Path, expected: distributions.Expected, epoch: int
) -> builds.Distributions:
    """Build copies of *sources* at two places, compare the files, and check them."""
    found = []
    for name, environment in (("a", _FIRST), ("another/place", _SECOND)):
        place = sources.parent / f"builds-of-{sources.name}" / name
        shutil.copytree(sources, place / "source")
        to = place / "dist"
        found.append(builds.build(place / "source", to, epoch=epoch, environment=environment))
    first, second = found
    builds.compare(first, second)
    _say(f"two builds gave the same bytes of {first.wheel.name} and {first.sdist.name}")
    distributions.check(first, expected)
    _say("their metadata, licence and contents are complete")
    return first


def _archives_twice(folder: Path, language: clients.Archives) -> dict[str, Path]:
    """Build the archives of *language* at two places, compare them, and return them by name."""
    if language.missing:
        why = f"the client for {language.language} was not built: {language.missing} are missing"
        if os.environ.get("ORDERLANE_REQUIRE_ALL") == "1":
            raise ReleaseError(why)
        _say(why)
        return {}
    found = []
    for name, environment in (("a", _FIRST), ("another/place", _SECOND)):
        place = folder / name
        place.mkdir(parents=True)
        kept = {key: value for key, value in environment.items() if key != "PYTHONHASHSEED"}
        found.append(language.build(place, kept))
    first, second = found
    builds.compare(first.values(), second.values())
    _say(f"two builds gave the same bytes of {', '.join(first)}")
    return first


def _tools() -> dict[str, str]:
    """Return the versions of the tools that are installed."""
    found = {"python": platform.python_version()}
    for name, command in _TOOLS.items():
        words = command.split()
        if shutil.which(words[0]) is not None:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            found[name] = (done.stdout.splitlines() or ["unknown"])[0].strip()
    return found


def _bill(pyproject: str, wheels: Iterable[Path], epoch: int) -> str:
    project = tomllib.loads(pyproject)["project"]
    pins = read_pins((ROOT / "constraints.txt").read_text())
    releases = bill_of_materials.read_requirements((ROOT / "requirements/server.txt").read_text())
    made = partial(
        bill_of_materials.make,
        releases,
        version=project["version"],
        licence=project["license"],
        wheels={each.name: _sha256(each) for each in wheels},
        roots=own_requirements(EXTRAS),
        requires=installed_or_asked(pins),
        licences={_name(pin): bill_of_materials.licence_here(pin) for pin in releases},
        epoch=epoch,
    )
    bill = made()
    if bill != made():
        raise ReleaseError("two bills of materials of the same sources differ")
    bill_of_materials.validate(bill)
    _say(f"the bill of materials lists {len(releases)} packages and is valid CycloneDX 1.6")
    return bill


def _name(pin: Pin) -> str:
    return canonicalize_name(pin.name)


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
