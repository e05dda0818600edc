"""The contents of the settings file with which workers start.

A worker that is restarted gets the settings with which the process was started, as a single process
keeps them, and the groups that the other workers serve. The file itself may be invalid by then, or
contain settings that count after a restart of the process.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from proxy.live.settings_file import SettingsFile, digest_of

#: Seconds between looks at the file; workers load a content that they saw for a second.
LOOK_S = 0.5
#: Contents that workers may report.
_MOST_RECENT = 4


class ServedFile:
    """The supervisor's view of *file*."""

    def __init__(self, file: SettingsFile) -> None:
        self._path = file.path
        self._first = self._newest = file.content
        self._recent = {file.digest: file.content}  # by digest, in the order in which they came

    @property
    def contents(self) -> tuple[bytes, bytes]:
        """The content with which the process was started, and the newest one that workers serve."""
        return self._first, self._newest

    async def run(self) -> None:
        """Follow the file until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Read the file."""
        content = await asyncio.to_thread(_read, self._path)
        if content is None:
            return
        digest = digest_of(content)
        self._recent.pop(digest, None)
        self._recent[digest] = content
        while len(self._recent) > _MOST_RECENT:
            del self._recent[next(iter(self._recent))]

    def reported(self, digest: str) -> None:
        """Record that a worker serves the groups of the content with *digest*."""
        self._newest = self._recent.get(digest, self._newest)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
