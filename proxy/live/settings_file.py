"""The file that the settings of a process came from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.settings.proxy_settings import Settings, load_settings


class SettingsFile:
    """The file that the settings of a process came from. ``settings`` are what it had then."""

    def __init__(
        self,
        path: Path,
        overrides: Mapping[str, Any] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """As ``load_settings``. Raises SettingsError."""
        self.path = path
        self._overrides = overrides
        self._environment = environment
        self.settings = self.load()

    def load(self, content: bytes | None = None) -> Settings:
        """The settings now. Raises SettingsError."""
        return load_settings(
            self.path, self._overrides, environment=self._environment, content=content
        )
