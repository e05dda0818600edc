"""The settings file of a process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.errors import SettingsError
from proxy.settings.proxy_settings import Settings, load_settings


class SettingsFile:
    """The file that the process was started with. ``settings`` are its initial content, and
    ``digest`` that of the content with their groups.
    """

    def __init__(
        self,
        path: Path,
        overrides: Mapping[str, Any] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        content: bytes | None = None,
        with_groups: bytes | None = None,
    ) -> None:
        """See ``load_settings``. Raises SettingsError.

        *content* is the initial content if it was read before, and *with_groups* a later one whose
        groups replace its own.
        """
        self.path = path
        self._overrides = overrides
        self._environment = environment
        self.content = _read(path) if content is None else content
        self.settings = self.load(self.content)
        self.digest = digest_of(self.content)
        if with_groups is not None and with_groups != self.content:
            groups = self.load(with_groups).groups
            self.settings = self.settings.model_copy(update={"groups": groups})
            self.digest = digest_of(with_groups)

    def load(self, content: bytes | None = None) -> Settings:
        """Return the current settings. Raises SettingsError."""
        return load_settings(
            self.path, self._overrides, environment=self._environment, content=content
        )


def digest_of(content: bytes) -> str:
    """Return a short text that tells *content* from any other."""
    return hashlib.sha256(content).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from None
