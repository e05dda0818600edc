"""Sources of the distribution orderlane-server, from those of the repository.

Needs the standard library alone, so that nothing has to be installed first.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tools.packages.mapping import SERVER, mapped

ROOT = Path(__file__).resolve().parents[2]
#: Metadata and the package ``orderlane_server``.
TEMPLATE = "tools/packages/server"
#: Packages that are installed in whole.
PACKAGES = ("broker_core", "proxy")
#: Modules of ``testkit`` that ``orderlane.testing`` needs.
SIMULATION = ("loop", "machine", "network", "process", "pytest_loop", "threads")
#: Files that are installed beside modules.
_DATA = ("py.typed", "*.pyi", "proxy/console/static/*")
#: The dependency group of ``pyproject.toml`` with the server's requirements, and their file.
_GROUP, _REQUIREMENTS = "server", "requirements.txt"


def installed(path: str) -> str | None:
    """Return the place of the repository's file *path* in the server's wheel; None if it is not
    installed.
    """
    file = PurePosixPath(path)
    if path.startswith(f"{TEMPLATE}/{SERVER}/"):
        return str(file.relative_to(TEMPLATE))
    wanted = file.parts[0] in PACKAGES or (file.parts[0] == "testkit" and _is_simulation(file))
    if wanted and (file.suffix == ".py" or any(file.match(each) for each in _DATA)):
        return f"{SERVER}/{path}"
    return None


def _is_simulation(file: PurePosixPath) -> bool:
    if file.name == "__init__.py":
        return str(file.parent) in ("testkit", "testkit/simulation")
    return str(file.parent) == "testkit/simulation" and file.stem in SIMULATION


def requirements(pyproject: str) -> list[str]:
    """Return the requirements of the server by the repository's *pyproject*: its client too."""
    about = tomllib.loads(pyproject)
    client = f"{about['project']['name']}=={about['project']['version']}"
    return [client, *about["dependency-groups"][_GROUP]]


def write_sources(root: Path, folder: Path) -> None:
    """Write the sources to the new *folder*.

    Raises FileExistsError if it exists, and MappingError for code that cannot be moved.
    """
    shutil.copytree(root / TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(root / "LICENSE", folder / "LICENSE")
    asked = requirements((root / "pyproject.toml").read_text())
    (folder / _REQUIREMENTS).write_text("".join(f"{each}\n" for each in asked))
    for path in _files(root):
        place = installed(path)
        if place is None:
            continue
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".py":
            target.write_text(mapped((root / path).read_text(), path))
        else:
            shutil.copyfile(root / path, target)


def _files(root: Path) -> Iterator[str]:
    for package in (*PACKAGES, "testkit"):
        for file in sorted((root / package).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file.relative_to(root).as_posix()
