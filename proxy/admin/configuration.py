"""Where the groups of a proxy come from, and what of it is not served."""

from __future__ import annotations

from typing import Any

from proxy.admin.operations import Call, Operation, get
from proxy.live.configuration import Configuration
from proxy.operator.asked import Answer


class FileView(Answer):
    """The settings file. ``refused``: why its newest content is not served."""

    path: str
    loaded_ms: int
    missing: bool
    refused: str | None
    restart_needed: list[str]


class SourceView(Answer):
    """Where a group comes from: the settings file, the store, or clients that asked for it."""

    group: str
    source: str


class StoreView(Answer):
    """The store of groups: their versions, and the nameservers that do not answer."""

    versions: dict[str, int]
    unreachable: list[str]


class ConfigurationView(Answer):
    """``problems``: a sentence for each thing that is not as somebody wants it."""

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
        """What it serves."""
        return [
            get(
                "/api/config",
                "Where the groups come from, and what of their settings is not served.",
                self._view,
                answer=ConfigurationView,
            )
        ]

    async def _view(self, _call: Call) -> dict[str, Any]:
        return self._configuration.view()
