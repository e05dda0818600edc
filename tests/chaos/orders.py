"""Orders for running senders and handlers: files in a folder that they check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CURED, _HOT, _TOGETHER, _POISON, _SLOW = "cured", "hot", "together", "poison", "slow"


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders in *folder*. A check costs one system call."""

    folder: Path
    slow_handlers_s: float = 0.0

    # ---- writers --------------------------------------------------------------------------------

    def cure(self) -> None:
        """Make all handlers succeed from now on."""
        self._set(_CURED)

    def heat(self, *, on: bool) -> None:
        """Give most messages one key."""
        self._set(_HOT, on=on)

    def gather(self, *, on: bool) -> None:
        """Let handlers wait for each other and end together."""
        self._set(_TOGETHER, on=on)

    def poison(self, key: str, *, on: bool) -> None:
        """Let handlers of messages of *key* sent from now on fail, until switched off."""
        self._set(f"{_POISON}-{key}", on=on)

    def slow(self, client: int, *, on: bool) -> None:
        """Make the handlers of a client very slow."""
        self._set(f"{_SLOW}-{client}", on=on)

    def _set(self, name: str, *, on: bool = True) -> None:
        self.folder.mkdir(exist_ok=True)
        if on:
            (self.folder / name).touch()
        else:
            (self.folder / name).unlink(missing_ok=True)

    def _is(self, name: str) -> bool:
        return (self.folder / name).exists()

    # ---- readers --------------------------------------------------------------------------------

    @property
    def all_cured(self) -> bool:
        """Whether no handler may fail any more."""
        return self._is(_CURED)

    def cured(self, body: dict[str, Any]) -> bool:
        """Whether the handler of this message may no longer fail."""
        return self.all_cured or ("poison" in body and not self._is(body["poison"]))

    @property
    def hot(self) -> bool:
        """Whether most messages should have one key."""
        return self._is(_HOT)

    @property
    def together(self) -> bool:
        """Whether handlers should wait for each other."""
        return self._is(_TOGETHER) and not self.all_cured

    def behaviour(self, key: str) -> dict[str, Any] | None:
        """Return the behaviour for messages of a poisoned key."""
        name = f"{_POISON}-{key}"
        if not self._is(name):
            return None
        return {"plan": "poison", "poison": name, "do": "retry", "work_ms": 1}

    def slow_s(self, name: str) -> float:
        """Return the extra time of the handlers of the named client: ``KIND-NUMBER-…``."""
        if not self.slow_handlers_s or self.all_cured:
            return 0.0
        number = name.split("-")[-2]
        return self.slow_handlers_s if self._is(f"{_SLOW}-{number}") else 0.0
