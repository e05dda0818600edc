"""Watches the settings file of a running proxy and reloads its groups when it changes."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field

import structlog

from broker_core.clock import wall_ms
from proxy.errors import SettingsError
from proxy.live.group_changes import restart_needed
from proxy.live.live_groups import LiveGroups, Source
from proxy.live.settings_file import SettingsFile, digest_of
from proxy.settings.proxy_settings import Settings

LOOK_S = 1.0

_log = structlog.get_logger("config")


@dataclass(slots=True)
class FileState:
    """State of the settings file. ``refused`` is why its newest content is not served, else
    empty; ``digest`` that of the content whose groups are served.
    """

    path: str
    loaded_ms: int
    digest: str
    applied: int = 0
    refusals: int = 0
    refused: str = ""
    missing: bool = False
    restart_needed: list[str] = field(default_factory=list)


class Watched:
    """A file that other processes write. New content counts only if two consecutive checks find it
    unchanged: a writer may be half done, and half a list of groups is valid, too.
    """

    def __init__(self) -> None:
        self._loaded: bytes | None = None
        self._seen: bytes | None = None

    def look(self, content: bytes | None, *, at_once: bool = False) -> bool:
        """Return whether *content* (None: missing or unreadable) should be loaded now.

        With *at_once* the file is known to be complete: load it even if it is unchanged or new.
        """
        if content is None:
            self._seen = None
            return False
        digest = hashlib.sha256(content).digest()
        settled = at_once or (digest == self._seen and digest != self._loaded)
        self._seen = digest
        if settled:
            self._loaded = digest
        return settled


class FileWatch:
    """Loads the file's groups into *live* when the file changes; an invalid file changes
    nothing.
    """

    def __init__(self, file: SettingsFile, live: LiveGroups) -> None:
        self._file = file
        self._live = live
        self._watched = Watched()
        self._at_once = asyncio.Event()
        #: Valid settings whose groups cannot be served yet.
        self._waiting: Settings | None = None
        self._waiting_digest = ""
        self.state = FileState(str(file.path), wall_ms(), file.digest)

    def reload(self) -> None:
        """Read the file now, changed or not: the caller knows that it is complete."""
        self._at_once.set()

    async def run(self) -> None:
        """Check every second until cancelled."""
        while True:
            await self._look()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._at_once.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        at_once = self._at_once.is_set()
        self._at_once.clear()
        content = await asyncio.to_thread(self._read)
        if (content is None) != self.state.missing:
            self.state.missing = content is None
            _log.warning(
                "the settings file was deleted: the groups stay unchanged"
                if content is None
                else "the settings file is back",
                file=self.state.path,
            )
        settled = self._watched.look(content, at_once=at_once)
        if content is None:
            return
        if settled:
            await self._load(content)
        elif self._waiting is not None and digest_of(content) == self._waiting_digest:
            # The reason may have gone: a file that they name has come, a served group has changed.
            self._serve(self._waiting, self._waiting_digest, again=True)

    def _read(self) -> bytes | None:
        try:
            return self._file.path.read_bytes()
        except OSError:
            return None

    async def _load(self, content: bytes) -> None:
        self._waiting = None
        try:
            if not content.strip():
                raise SettingsError(
                    f"{self.state.path} is empty: write 'groups: []' if no group should be left"
                )
            settings = await asyncio.to_thread(self._file.load, content)
        except Exception as error:  # not even a bug may end the watch
            self._refuse(error)
            return
        self._serve(settings, digest_of(content))

    def _serve(self, settings: Settings, digest: str, *, again: bool = False) -> None:
        state = self.state
        try:
            self._live.give(Source.FILE, settings.groups)
        except Exception as error:  # as above
            self._waiting, self._waiting_digest = settings, digest
            if not again or str(error) != state.refused:
                self._refuse(error)
            return
        self._waiting = None
        state.applied += 1
        state.refused, state.loaded_ms, state.digest = "", wall_ms(), digest
        self._note_rest(settings)

    def _refuse(self, error: Exception) -> None:
        self.state.refusals += 1
        self.state.refused = str(error)
        _log.error(
            "settings file refused: the groups stay unchanged",
            file=self.state.path,
            reason=self.state.refused,
            exc_info=None if isinstance(error, SettingsError) else error,
        )

    def _note_rest(self, settings: Settings) -> None:
        """Record the other settings that differ from those the process started with."""
        others = restart_needed(self._file.settings, settings)
        if others and others != self.state.restart_needed:
            _log.warning(
                "settings beside the groups changed: they count after a restart",
                file=self.state.path,
                settings=others,
            )
        self.state.restart_needed = others
