"""Every target of the Makefile does something."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from testkit.processes import ROOT

pytestmark = pytest.mark.sockets

_MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = sorted(
    {name for line in re.findall(r"^\.PHONY: (.+)", _MAKEFILE, re.M) for name in line.split()}
)


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_has_commands_on_a_fresh_clone(target: str, tmp_path: Path) -> None:
    made = subprocess.run(
        ["make", "--dry-run", target, f"VENV={tmp_path}/venv", "OTHER=python3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert "Nothing to be done" not in made.stdout, made.stdout
