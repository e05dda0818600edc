"""Every module has a layer, and the document shows the layers."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.layers import (
    DOCUMENT,
    children,
    contracts,
    levels,
    picture,
    proposed,
    with_picture,
)
from tools.lint.source import PRODUCT, ROOT

PYPROJECT = (ROOT / "pyproject.toml").read_text()
SMALL = """
[tool.importlinter]
root_packages = ["house"]

[[tool.importlinter.contracts]]
name = "Layers of house"
type = "layers"
containers = ["house"]
exhaustive = true
layers = ["roof", "walls | doors"]
"""


def test_the_picture_is_fresh() -> None:
    """If this fails: python -m tools.layers."""
    document = DOCUMENT.read_text()
    assert with_picture(document, picture(PYPROJECT)) == document


def test_every_package_of_the_product_has_layers_that_name_all_its_modules() -> None:
    assert {*PRODUCT, "proxy.core"} <= {container for container, _ in contracts(PYPROJECT)}
    loose = [
        each["name"]
        for each in tomllib.loads(PYPROJECT)["tool"]["importlinter"]["contracts"]
        if each.get("containers") and not each.get("exhaustive")
    ]
    assert loose == []


def linted(folder: Path, **modules: str) -> str:
    """Return import-linter's output for a package with these modules; "" without an error."""
    (folder / "house").mkdir()
    (folder / "pyproject.toml").write_text(SMALL)
    for name, text in {"__init__": "", "roof": "", "walls": "", "doors": "", **modules}.items():
        (folder / "house" / f"{name}.py").write_text(text)
    command = "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"
    done = subprocess.run(
        [sys.executable, "-c", command],
        cwd=folder,
        env={"PYTHONPATH": str(folder)},
        check=False,
        capture_output=True,
        text=True,
        timeout=110,
    )
    return done.stdout if done.returncode else ""


def test_a_module_in_no_layer_fails(tmp_path: Path) -> None:
    assert "house.cellar" in linted(tmp_path, cellar="")


@pytest.mark.parametrize("wrong", [{"walls": "import house.roof"}, {"doors": "import house.walls"}])
def test_an_import_upwards_or_sideways_fails(tmp_path: Path, wrong: dict[str, str]) -> None:
    (importer,) = wrong
    assert f"house.{importer} -> " in linted(tmp_path, **wrong)


def test_an_import_downwards_passes(tmp_path: Path) -> None:
    assert linted(tmp_path, roof="import house.walls") == ""


def test_the_picture_has_a_paragraph_for_each_contract_and_replaces_the_old_one() -> None:
    assert picture(SMALL, ["garden"]) == ""
    drawn = picture(SMALL, ["house"])
    assert drawn == "house\n    roof\n    walls | doors\n"
    marks = "<!-- layers -->\n{}<!-- /layers -->\n"
    document = f"Text.\n{marks}More.\n"
    assert with_picture(document.format("old\n"), drawn) == document.format(f"```\n{drawn}```\n")
    with pytest.raises(ValueError, match="no marks"):
        with_picture("Text.", drawn)


def test_layers_are_proposed_by_the_longest_way_down() -> None:
    graph = {
        "a": frozenset[str](),
        "a.app": frozenset({"a.x.one", "a.words"}),
        "a.x": frozenset[str](),
        "a.x.one": frozenset({"a.words", "b"}),
        "a.words": frozenset[str](),
        "a.names": frozenset[str](),
        "b": frozenset[str](),
    }
    assert levels(children("a", graph)) == [["a.app"], ["a.x"], ["a.names", "a.words"]]
    assert proposed("a", graph) == '    "app",\n    "x",\n    "names | words",\n'
    with pytest.raises(ValueError, match=r"cycle: a\.x, b"):
        levels({"a.x": frozenset({"b"}), "b": frozenset({"a.x"})})
