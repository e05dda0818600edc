"""The settings file of a process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.settings.proxy_settings import Settings, load_settings


class SettingsFile:
    """The file that the process was started with. ``settings`` are its initial content."""

    def __init__(
        self,
        path: Path,
        overrides: Mapping[str, Any] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """See ``load_settings``. Raises SettingsError."""
        self.path = path
        self._overrides = overrides
        self._environment = environment
        self.settings = self.load()

    def load(self, content: bytes | None = None) -> Settings:
        """Return the current settings. Raises SettingsError."""
        return load_settings(
            self.path, self._overrides, environment=self._environment, content=content
        )
