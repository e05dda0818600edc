"""Sources of a proxy's groups, and settings that are not in effect."""

from __future__ import annotations

from typing import Any

from proxy.admin.operations import Call, Operation, get
from proxy.live.configuration import Configuration
from proxy.operator.request_models import Answer


class FileView(Answer):
    """The settings file. ``refused``: why its latest content is not in effect."""

    path: str
    loaded_ms: int
    missing: bool
    refused: str | None
    restart_needed: list[str]


class SourceView(Answer):
    """The source of a group: the settings file, the store, or a client's request."""

    group: str
    source: str


class StoreView(Answer):
    """The store of groups: their versions, nameservers that do not answer, groups with unsigned
    settings, and groups signed with another key than the first.
    """

    versions: dict[str, int]
    unreachable: list[str]
    unsigned: list[str]
    old_keys: list[str]


class ConfigurationView(Answer):
    """``problems``: one sentence for each setting that is not in effect."""

    file: FileView | None
    store: StoreView | None
    groups: list[SourceView]
    leaving: list[str]
    problems: list[str]


class ConfigurationSurface:
    """``GET /api/config``."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            get(
                "/api/config",
                "Show the sources of groups, and settings that are not in effect.",
                self._view,
                answer=ConfigurationView,
            )
        ]

    async def _view(self, _call: Call) -> dict[str, Any]:
        return self._configuration.view()
