"""All files state one version."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.pins import ROOT
from tools.versions import PLACES, main, release_version, state, stated


def copy(to: Path) -> Path:
    for name in PLACES:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, to / name)
    return to


def test_all_files_state_the_version_of_the_release() -> None:
    assert stated() == {name: {release_version()} for name in PLACES}


def test_a_new_version_is_stated_everywhere(tmp_path: Path) -> None:
    root = copy(tmp_path)
    state("12.3.45", root)
    assert stated(root) == {name: {"12.3.45"} for name in PLACES}
    state(release_version(), root)
    assert all((root / name).read_text() == (ROOT / name).read_text() for name in PLACES)


def test_a_file_without_a_version_is_named(tmp_path: Path) -> None:
    root = copy(tmp_path)
    (root / "helm/Chart.yaml").write_text("version: none\n")
    with pytest.raises(ValueError, match=r"helm/Chart\.yaml states no version"):
        stated(root)


def test_a_version_has_three_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["1.2"]) == 1
    assert "expected three numbers" in capsys.readouterr().err
