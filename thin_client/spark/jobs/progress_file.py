"""Progress of a job in steps: a small file on the driver, replaced atomically."""

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
    """Finished steps of a job.

    Args:
        path: the file; None: no progress is stored.
        about: the job's settings; a job with other settings cannot continue.
        job: the job ID of the first run, part of the names of its messages.
        partitions: the number of tasks of the first run, part of the names too.
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
        """Return the stored progress, or a new one with *partitions* and *job* without a file.

        Raises OptionError.
        """
        new = cls(path, dict(about), job, partitions)
        if path is None or not path.exists():
            return new
        try:
            kept = json.loads(path.read_text())
            found = cls(path, dict(kept["about"]), kept["job"], kept["partitions"], kept["done"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OptionError(
                f"{path} is not a progress file ({error!r}): choose another file"
            ) from None
        if found.about != new.about:
            raise OptionError(
                f"{path} holds the progress of {_words(found.about)}, not of {_words(new.about)}:"
                " choose another file"
            )
        return found

    def add(self, step: str) -> None:
        """Record that *step* is done. Raises OptionError if writing fails."""
        self.done.append(step)
        self.keep()

    def keep(self) -> None:
        """Write the file, if there is one. Raises OptionError."""
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
            raise OptionError(f"cannot write progress to {self.path}: {error.strerror}") from None


def _words(about: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in about.items())
