"""Tables, code, settings, links and names in the documents match the code."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.broker.settings import BrokerSettings
from proxy.settings.proxy_settings import load_settings
from tools.tables import ROOT, tables, with_tables

#: Modules that need Spark, which is not installed everywhere.
WITH_SPARK = ("pyspark", "orderlane.spark")
#: The description of the package, for its page in an index.
PACKAGE_PAGES = (
    ROOT / "thin_client/README.md",
    ROOT / "tools/packages/server/README.md",
)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *PACKAGE_PAGES])
#: Packages of the project; programs import the first one alone.
OURS = ("orderlane", "broker_core", "proxy", "testkit", "thin_client", "thrift_idl", "tools")


@pytest.mark.parametrize("document", tables(), ids=lambda document: str(document.name))
def test_generated_tables_are_up_to_date(document: Path) -> None:
    """If this fails, run: python -m tools.tables."""
    assert document.read_text() == with_tables(document.read_text(), tables()[document])


def test_the_table_of_broker_settings_names_each_with_its_default() -> None:
    text = (ROOT / "docs/settings.md").read_text().partition("## The embedded broker")[2]
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)`", text, flags=re.M))
    defaults = {
        name: {"None": "null", "True": "true", "False": "false", "()": "[]"}.get(
            str(field.default), str(field.default)
        )
        for name, field in BrokerSettings.model_fields.items()
    }
    assert set(rows) == set(defaults)
    del defaults["data"]  # required here; the commands have a default
    assert {name: rows[name] for name in defaults} == {
        name: value.removesuffix(".0") for name, value in defaults.items()
    }


def _blocks(language: str) -> list[tuple[str, str]]:
    return [
        (f"{document.name} {number}", code)
        for document in DOCUMENTS
        for number, code in enumerate(
            re.findall(rf"```{language}\n(.*?)```", document.read_text(), flags=re.S)
        )
    ]


@pytest.mark.parametrize(("name", "code"), _blocks("python"))
def test_python_in_the_documents_compiles_and_imports_existing_names(name: str, code: str) -> None:
    for node in ast.walk(ast.parse(code, name)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module.startswith(WITH_SPARK) and importlib.util.find_spec("pyspark") is None:
                continue  # make test-spark runs all of docs/spark.md
            module = importlib.import_module(node.module)
            assert [each.name for each in node.names if not hasattr(module, each.name)] == []


@pytest.mark.parametrize(("name", "code"), _blocks("python"))
def test_programs_in_the_documents_use_the_public_api_alone(name: str, code: str) -> None:
    for module, names in _imports(code):
        package = module.partition(".")[0]
        if package not in OURS:
            continue
        assert package == "orderlane", f"{name}: {module}: import from orderlane"
        public = _exported(module)
        assert [each for each in names if each not in public] == [], f"{name}: {module}"


def _imports(code: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the modules that *code* imports, with the names that it takes from each."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module, [each.name for each in node.names]
        elif isinstance(node, ast.Import):
            yield from ((each.name, []) for each in node.names)


def _exported(module: str) -> set[str]:
    """Return ``__all__`` of *module* without importing it: it may need Spark."""
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{module} has no __all__")


def test_a_program_that_uses_more_than_the_public_api_is_found() -> None:
    code = "from orderlane import Message\nimport thin_client.wire\nfrom proxy.app import Proxy\n"
    assert [module for module, _ in _imports(code)] == [
        "orderlane",
        "thin_client.wire",
        "proxy.app",
    ]
    assert "Message" in _exported("orderlane")
    assert "client_version" not in _exported("orderlane")


@pytest.mark.parametrize("page", PACKAGE_PAGES, ids=lambda page: str(page.parent.name))
def test_links_of_a_package_page_work_outside_the_repository(page: Path) -> None:
    source = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    links = re.findall(r"\]\(([^)]+)\)", page.read_text())
    assert links
    for link in links:
        assert link.startswith(source), link
        _, _, path = link.removeprefix(source).partition("/main/")
        assert (ROOT / path).exists(), link


@pytest.mark.parametrize(("name", "code"), _blocks("yaml"))
def test_settings_in_the_documents_are_valid(name: str, code: str, tmp_path: Path) -> None:
    path = tmp_path / "orderlane.yaml"
    path.write_text(code)
    assert load_settings(path, environment={}) != load_settings(environment={}), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.name))
def test_links_between_documents_resolve(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.name))
def test_files_named_in_the_documents_exist(document: Path) -> None:
    named = re.findall(
        r"`((?:proxy|broker_core|thin_client|thrift_idl|tests|bench)/[\w/.]+\.\w+)`",
        document.read_text(),
    )
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_each_attack_names_an_existing_test() -> None:
    """The number of rows also reaches the minimum that the document states."""
    table = (ROOT / "SECURITY.md").read_text().partition("| attack | answer | test |")[2]
    rows = [line.rstrip("| ").rpartition("| ")[2].strip("`") for line in table.splitlines()[2:]]
    assert len(rows) >= 25
    for row in rows:
        path, _, name = row.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), row


@pytest.mark.parametrize(("page", "most"), [("README.md", 120), ("ARCHITECTURE.md", 250)])
def test_an_entry_page_is_read_in_one_go(page: str, most: int) -> None:
    """Move reasons to docs/decisions, and instructions to docs."""
    assert len((ROOT / page).read_text().splitlines()) <= most
