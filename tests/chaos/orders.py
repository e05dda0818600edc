"""What is said to senders and handlers while they run: files in a folder, which they look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CURED, _HOT, _TOGETHER, _POISON, _SLOW = "cured", "hot", "together", "poison", "slow"


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders in *folder*. Looking at one costs a system call."""

    folder: Path
    slow_handlers_s: float = 0.0

    # ---- who gives them -------------------------------------------------------------------------

    def cure(self) -> None:
        """From now on no handler fails."""
        self._set(_CURED)

    def heat(self, *, on: bool) -> None:
        """Most messages are of one key."""
        self._set(_HOT, on=on)

    def gather(self, *, on: bool) -> None:
        """Handlers wait for each other, to end at one time."""
        self._set(_TOGETHER, on=on)

    def poison(self, key: str, *, on: bool) -> None:
        """Handlers of messages of *key* that are sent now fail until it is taken back."""
        self._set(f"{_POISON}-{key}", on=on)

    def slow(self, client: int, *, on: bool) -> None:
        """Handlers of a client take very long."""
        self._set(f"{_SLOW}-{client}", on=on)

    def _set(self, name: str, *, on: bool = True) -> None:
        self.folder.mkdir(exist_ok=True)
        if on:
            (self.folder / name).touch()
        else:
            (self.folder / name).unlink(missing_ok=True)

    def _is(self, name: str) -> bool:
        return (self.folder / name).exists()

    # ---- who takes them -------------------------------------------------------------------------

    @property
    def all_cured(self) -> bool:
        """No handler may fail any more."""
        return self._is(_CURED)

    def cured(self, body: dict[str, Any]) -> bool:
        """Whether the handler of this message may not fail any more."""
        return self.all_cured or ("poison" in body and not self._is(body["poison"]))

    @property
    def hot(self) -> bool:
        """Most messages shall be of one key."""
        return self._is(_HOT)

    @property
    def together(self) -> bool:
        """Handlers shall wait."""
        return self._is(_TOGETHER) and not self.all_cured

    def behaviour(self, key: str) -> dict[str, Any] | None:
        """That of handlers of a poisoned key's messages."""
        name = f"{_POISON}-{key}"
        if not self._is(name):
            return None
        return {"plan": "poison", "poison": name, "do": "retry", "work_ms": 1}

    def slow_s(self, name: str) -> float:
        """How much longer the handlers of the client of that name shall take: ``KIND-NUMBER-…``."""
        if not self.slow_handlers_s or self.all_cured:
            return 0.0
        number = name.split("-")[-2]
        return self.slow_handlers_s if self._is(f"{_SLOW}-{number}") else 0.0
