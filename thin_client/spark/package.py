"""What Spark's executors need of this package, as one zip of Python files.

Spark carries it to them (``--py-files``), where nothing of ours is installed: the bulk source and
its jobs, whatever of our other packages these import, and thrift without its codec in C. PySpark,
PyArrow and numpy have to be there; they are compiled, and no zip brings them.
"""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator
from pathlib import Path

import thrift

#: Of ours; their folders lie beside each other, installed or not.
_OURS = ("thin_client", "thrift_idl", "broker_core", "proxy", "pyspark_orderlane")
_ROOT = Path(__file__).parents[2]
_SPARK = Path(__file__).parent
#: Zip knows no earlier time; a fixed one makes equal files of equal content.
_TIME = (1980, 1, 1, 0, 0, 0)


def write_package(path: Path) -> int:
    """Write the zip to *path*, over what is there; the number of files in it.

    Raises ValueError if it is named otherwise than ``*.zip``, which Spark goes by, and OSError.
    """
    if path.suffix != ".zip":
        raise ValueError(f"{path} should be named *.zip: by that Spark knows it for Python files")
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
    """The files of the bulk source, and all of ours that they import, one through the other."""
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
    """Every name that *file* may import; of ``from a import b`` b may be a module, or not."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _file_of(name: str) -> Path | None:
    """Where the module *name* is, if it is one of ours."""
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
