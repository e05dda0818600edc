"""The version of a release, in every file that states it.

``python -m tools.versions`` prints it, ``python -m tools.versions 1.2.3`` changes all of them. A
test compares them.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tools.pins import ROOT

_NUMBER = r"(\d+\.\d+\.\d+)"
#: By file: patterns whose groups are the version; each must be found, and may be found repeatedly.
PLACES: dict[str, tuple[str, ...]] = {
    "pyproject.toml": (rf'^version = "{_NUMBER}"', rf"orderlane-server=={_NUMBER}"),
    "tools/packages/server/pyproject.toml": (rf'^version = "{_NUMBER}"',),
    "orderlane/__init__.py": (rf'^__version__ = "{_NUMBER}"',),
    "thin_client/node/package.json": (rf'^  "version": "{_NUMBER}"',),
    "thin_client/node/package-lock.json": (
        rf'\A\{{\n  "name": "orderlane",\n  "version": "{_NUMBER}"',
        rf'^      "name": "orderlane",\n      "version": "{_NUMBER}"',
    ),
    "thin_client/node/README.md": (rf"orderlane-{_NUMBER}\.tgz",),
    "thin_client/java/pom.xml": (
        rf"<artifactId>orderlane-client</artifactId>\n  <version>{_NUMBER}</version>",
    ),
    "thin_client/java/example/pom.xml": (
        rf"<artifactId>orderlane-client</artifactId>\n      <version>{_NUMBER}</version>",
    ),
    "thin_client/java/README.md": (
        rf"<artifactId>orderlane-client</artifactId>\n      <version>{_NUMBER}</version>",
    ),
    "thin_client/cpp/CMakeLists.txt": (rf"^project\(orderlane VERSION {_NUMBER} ",),
    "helm/Chart.yaml": (rf"^version: {_NUMBER}", rf'^appVersion: "{_NUMBER}"'),
    "docs/compose/docker-compose.yml": (rf"image: orderlane:{_NUMBER}",),
    "docs/kubernetes.md": (rf"my-images/orderlane:{_NUMBER}",),
    "docs/decisions/packages.md": (rf"thin_client/go/v{_NUMBER}",),
}


def release_version(root: Path = ROOT) -> str:
    """Return the version that pyproject.toml states."""
    text = (root / "pyproject.toml").read_text()
    (version,) = re.findall(PLACES["pyproject.toml"][0], text, re.MULTILINE)
    return str(version)


def stated(root: Path = ROOT) -> dict[str, set[str]]:
    """Return the versions that each file states. Raises ValueError if one states none."""
    found: dict[str, set[str]] = {}
    for name, patterns in PLACES.items():
        text = (root / name).read_text()
        for pattern in patterns:
            versions = re.findall(pattern, text, re.MULTILINE)
            if not versions:
                raise ValueError(f"{name} states no version where {pattern!r} expects it")
            found.setdefault(name, set()).update(versions)
    return found


def state(version: str, root: Path = ROOT) -> None:
    """Write *version* into every file. Raises ValueError for anything but three numbers."""
    if re.fullmatch(_NUMBER, version) is None:
        raise ValueError(f"version {version!r}: expected three numbers, as in 1.2.3")
    for name, patterns in PLACES.items():
        path = root / name
        text = path.read_text()
        for pattern in patterns:
            text = re.sub(
                pattern,
                lambda found: found[0].replace(found[1], version),
                text,
                flags=re.MULTILINE,
            )
        path.write_text(text)


def main(arguments: list[str] | None = None) -> int:
    """Print or change the version; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.versions", description=__doc__)
    parser.add_argument("version", nargs="?", help="the new version, as in 1.2.3")
    version = parser.parse_args(arguments).version
    try:
        if version is not None:
            state(version)
        versions = set().union(*stated().values())
    except ValueError as error:
        sys.stderr.write(f"python -m tools.versions: {error}\n")
        return 1
    sys.stdout.write(f"{' '.join(sorted(versions))}\n")
    return 0 if len(versions) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
