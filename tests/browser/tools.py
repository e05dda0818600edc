"""What these tests need beside Python, and whether it is there."""

from __future__ import annotations

import importlib.util
import shutil


def chromium() -> str:
    """The system's own browser; Playwright would bring one from elsewhere."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or ""


def missing() -> str | None:
    """What this machine lacks, as a sentence; None if all is there."""
    if not chromium():
        return "chromium not found: install it (on Debian the package chromium)"
    if shutil.which("npm") is None:
        return "npm not found: install Node 20 or newer with it (on Debian nodejs and npm)"
    if importlib.util.find_spec("playwright") is None:
        return "the Python package playwright is missing: make test-browser installs it"
    return None
