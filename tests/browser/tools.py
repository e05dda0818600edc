"""Tools of these tests besides Python, and checks for them."""

from __future__ import annotations

import importlib.util
import shutil


def chromium() -> str:
    """Return the system's own browser; Playwright would download one."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or ""


def missing() -> str | None:
    """Return a sentence about the missing tools; None if all are installed."""
    if not chromium():
        return "chromium not found: install it (on Debian the package chromium)"
    if shutil.which("npm") is None:
        return "npm not found: install Node 20 or newer with it (on Debian nodejs and npm)"
    if importlib.util.find_spec("playwright") is None:
        return "the Python package playwright is missing: make test-browser installs it"
    return None
