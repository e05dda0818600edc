"""A zip of the Python files that Spark's executors need (``--py-files``).

For executors without orderlane: the bulk source and its jobs, the modules that these import from
our other packages, and thrift without its C extension. PySpark, PyArrow and numpy have to be
installed there; they are compiled, so a zip cannot contain them.
"""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator
from pathlib import Path

import thrift

#: Our packages; their folders are siblings, installed or not.
_OURS = (
    *("thin_client", "thrift_idl", "broker_core", "proxy", "pyspark_orderlane"),
    "orderlane_server",  # of an installation: proxy and broker_core are below it
)
_ROOT = Path(__file__).parents[2]
_SPARK = Path(__file__).parent
#: The earliest time in a zip; a fixed time makes zips of the same content identical.
_TIME = (1980, 1, 1, 0, 0, 0)


def write_package(path: Path) -> int:
    """Write the zip to *path*, replacing an existing file; return the number of files in it.

    Raises ValueError unless *path* ends in ``.zip``, which Spark requires, and OSError.
    """
    if path.suffix != ".zip":
        raise ValueError(f"{path}: Spark accepts Python files only as .zip: use that suffix")
    files = dict(sorted([*_our_files(), *_thrift_files()]))
    unfinished = path.with_suffix(".zip.part")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in files.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes())
    unfinished.replace(path)
    return len(files)


def _our_files() -> Iterator[tuple[str, Path]]:
    """Yield the files of the bulk source, and of our modules that they import transitively."""
    waiting = [_ROOT / "pyspark_orderlane.py", *_SPARK.rglob("*.py")]
    found: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found.add(file)
        packages = [each / "__init__.py" for each in file.parents if each.is_relative_to(_ROOT)]
        waiting += [each for each in packages if each.parent != _ROOT and each.exists()]
        waiting += [each for name in _imported(file) if (each := _file_of(name)) is not None]
    for file in found:
        yield str(file.relative_to(_ROOT)), file


def _imported(file: Path) -> Iterator[str]:
    """Yield every module that *file* may import; for ``from a import b`` also ``a.b``."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _file_of(name: str) -> Path | None:
    """Return the file of the module *name* if it is one of ours."""
    parts = name.split(".")
    if parts[0] not in _OURS:
        return None
    folder = _ROOT.joinpath(*parts)
    for file in (folder.with_suffix(".py"), folder / "__init__.py"):
        if file.exists():
            return file
    return None


def _thrift_files() -> Iterator[tuple[str, Path]]:
    folder = Path(thrift.__file__).parent
    for file in folder.rglob("*.py"):
        yield str(Path("thrift") / file.relative_to(folder)), file
