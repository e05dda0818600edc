"""Setuptools' command that copies modules into a wheel, with the imports of an installation.

Setuptools loads this file by its path, without the packages around it.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any

from setuptools.command.build_py import build_py


def _mapping() -> Any:
    spec = importlib.util.spec_from_file_location(
        "orderlane_mapping", Path(__file__).with_name("mapping.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class BuildPy(build_py):
    """``build_py`` of the client. An editable installation has the names of the repository."""

    def run(self) -> None:
        """Build into an empty folder: files of an earlier layout would be installed too."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()

    def build_module(self, module: Any, module_file: Any, package: Any) -> Any:
        """Copy a module and rewrite its imports."""
        outfile, copied = super().build_module(module, module_file, package)
        path = Path(outfile)
        text = _mapping().mapped(path.read_text(encoding="utf-8"), str(module_file))
        path.write_text(text, encoding="utf-8")
        return outfile, copied
