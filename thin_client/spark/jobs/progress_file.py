"""How far a job has come that goes step by step: a small file on the driver, replaced at once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from thin_client.spark.options import OptionError


@dataclass(slots=True)
class Progress:
    """*about*: what the job does; it cannot go on as another. *job* and *partitions* stay those of
    the first run: they are in the names of its messages. *path*: None: nothing is kept.
    """

    path: Path | None
    about: dict[str, str]
    job: str
    partitions: int
    done: list[str] = field(default_factory=list)

    @classmethod
    def read(
        cls, path: Path | None, about: Mapping[str, str], *, partitions: int, job: str
    ) -> Self:
        """What the file says; *partitions* and *job* where there is none. Raises OptionError."""
        new = cls(path, dict(about), job, partitions)
        if path is None or not path.exists():
            return new
        try:
            kept = json.loads(path.read_text())
            found = cls(path, dict(kept["about"]), kept["job"], kept["partitions"], kept["done"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OptionError(
                f"{path} holds no progress of a job ({error!r}): name another file"
            ) from None
        if found.about != new.about:
            raise OptionError(
                f"{path} holds the progress of {_words(found.about)}, not of {_words(new.about)}:"
                " name another file"
            )
        return found

    def add(self, step: str) -> None:
        """*step* is done. Raises OptionError if that cannot be kept."""
        self.done.append(step)
        self.keep()

    def keep(self) -> None:
        """Write it, if there is a file. Raises OptionError."""
        if self.path is None:
            return
        kept = {
            "about": self.about,
            "job": self.job,
            "partitions": self.partitions,
            "done": self.done,
        }
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            with new.open("w") as file:
                json.dump(kept, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            raise OptionError(f"{self.path}: progress cannot be kept: {error.strerror}") from None


def _words(about: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in about.items())
