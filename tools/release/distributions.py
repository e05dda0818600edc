"""Checks of a built wheel and source archive: metadata, licence, contents."""

from __future__ import annotations

import base64
import csv
import hashlib
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

from tools.packages import server_sources
from tools.release.builds import Distributions, contents
from tools.release.problem import ReleaseError


@dataclass(frozen=True, slots=True)
class Expected:
    """Contents of one distribution.

    Args:
        project: The table ``project`` of its pyproject.toml.
        requirements: All that it and its extras require.
        files: Paths in its wheel.
    """

    project: Mapping[str, Any]
    requirements: Sequence[str]
    files: Collection[str]

    @property
    def name(self) -> str:
        """Name of the distribution."""
        name: str = self.project["name"]
        return name


def expected(sources: Path, tracked: Collection[str]) -> tuple[Expected, Expected]:
    """Return the contents of the client and of the server by the repository's copy at *sources*.

    *tracked*: paths of its files.
    """
    pyproject = (sources / "pyproject.toml").read_text()
    server = tomllib.loads((sources / server_sources.TEMPLATE / "pyproject.toml").read_text())
    files = {place for path in tracked if (place := server_sources.installed(path)) is not None}
    asked = server_sources.requirements(pyproject)
    return client(pyproject, tracked), Expected(server["project"], asked, files)


def client(pyproject: str, tracked: Iterable[str]) -> Expected:
    """Return the contents of a distribution that *pyproject* describes in whole."""
    about = tomllib.loads(pyproject)
    project = about["project"]
    asked = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    return Expected(project, asked, installed(about["tool"]["setuptools"], tracked))


def check(built: Distributions, expected: Expected) -> None:
    """Raise ReleaseError unless both files are complete and as *expected*."""
    project = expected.project
    wheel, sdist = contents(built.wheel), contents(built.sdist)
    about = f"{expected.name.replace('-', '_')}-{project['version']}"
    metadata = _metadata(wheel, f"{about}.dist-info/METADATA", built.wheel.name)
    source = _metadata(sdist, f"{about}/PKG-INFO", built.sdist.name)
    _check_names(built, metadata)
    for each, file in ((metadata, built.wheel.name), (source, built.sdist.name)):
        _check_metadata(each, expected, file)
    _check_record(wheel, f"{about}.dist-info/RECORD", built.wheel.name)
    if not any(name.startswith(f"{about}.dist-info/licenses/") for name in wheel):
        raise ReleaseError(f"{built.wheel.name} has no licence: expected LICENSE in its metadata")
    files = set(expected.files)
    _compare(files, (each for each in wheel if ".dist-info/" not in each), built.wheel.name)
    missing = files - {name.removeprefix(f"{about}/") for name in sdist}
    if missing:
        raise ReleaseError(f"{built.sdist.name} lacks {min(missing)}")


def _metadata(files: Mapping[str, bytes], path: str, file: str) -> Metadata:
    if path not in files:
        raise ReleaseError(f"{file} has no {path}")
    try:
        return Metadata.from_email(files[path], validate=True)
    except ExceptionGroup as group:
        reasons = "; ".join(str(error) for error in group.exceptions)
        raise ReleaseError(f"{path} in {file} is invalid: {reasons}") from group


def _check_names(built: Distributions, metadata: Metadata) -> None:
    names = (parse_wheel_filename(built.wheel.name)[:2], parse_sdist_filename(built.sdist.name))
    expected = (canonicalize_name(metadata.name), metadata.version)
    for found, file in zip(names, built, strict=True):
        if found != expected:
            raise ReleaseError(f"{file.name} is named unlike {metadata.name} {metadata.version}")


def _check_metadata(metadata: Metadata, expected: Expected, file: str) -> None:
    project = expected.project
    asked = sorted({_plain(Requirement(each)) for each in expected.requirements})
    pairs = {
        "version": (str(metadata.version), project["version"]),
        "requires-python": (str(metadata.requires_python), project["requires-python"]),
        "licence": (metadata.license_expression, project["license"]),
        "type of the description": (metadata.description_content_type, "text/markdown"),
        "dependencies": (sorted({_plain(each) for each in metadata.requires_dist or ()}), asked),
    }
    for field, (found, wanted) in pairs.items():
        if found != wanted:
            raise ReleaseError(f"{field} in {file}: {found!r}: expected {wanted!r}")
    if not (metadata.description or "").strip():
        raise ReleaseError(f"{file} has no description: expected the text of README.md")


def _plain(requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{canonicalize_name(requirement.name)}{extras}{requirement.specifier}"


def _check_record(wheel: Mapping[str, bytes], path: str, file: str) -> None:
    rows = {row[0]: row[1] for row in csv.reader(wheel[path].decode().splitlines())}
    _compare(set(rows), wheel, f"the record of {file}")
    for name, content in wheel.items():
        found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if name != path and rows[name] != f"sha256={found}":
            raise ReleaseError(f"{name} in {file} differs from its SHA-256 in the record")


def installed(settings: Mapping[str, Any], tracked: Iterable[str]) -> set[str]:
    """Return the paths of *tracked* that an installation contains by setuptools' *settings*."""
    wanted = settings["packages"]["find"]["include"]
    data: Mapping[str, list[str]] = settings["package-data"]
    found = {f"{module}.py" for module in settings["py-modules"]}
    for path in map(PurePosixPath, tracked):
        package = ".".join(path.parent.parts)
        if not any(_covers(pattern, package) for pattern in wanted):
            continue
        # Patterns of data start at the folder of their package, which may be one above.
        patterns = [*data.get("*", ()), *data.get(package, ())]
        above = path.parent.parent
        patterns += [f"{above}/{each}" for each in data.get(".".join(above.parts), ())]
        if path.suffix == ".py" or any(path.match(each) for each in patterns):
            found.add(str(path))
    return found


def _covers(pattern: str, package: str) -> bool:
    inside = pattern.removesuffix(".*")
    return package.startswith(f"{inside}.") if pattern.endswith(".*") else package == pattern


def _compare(expected: Collection[str], found: Iterable[str], file: str) -> None:
    there = set(found)
    if missing := sorted(set(expected) - there):
        raise ReleaseError(f"{file} lacks {missing[0]}")
    if extra := sorted(there - set(expected)):
        raise ReleaseError(f"{file} has {extra[0]}, which does not belong to it")
