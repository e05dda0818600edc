"""Progress of a job in steps: a small file, on the driver or in a file system of Spark's, that is
replaced atomically.

Two jobs with one file would send a step while the other sends the next one. A file of this machine
is locked by its job. A file system of Spark's has no locks: there the file names the run that began
last, and a former one fails when it finds another name.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from thin_client.spark.options import OptionError


class TextFile(Protocol):
    """A small file; ``str`` of it names it in errors."""

    def read(self) -> str | None:
        """Return the content; None if there is no file. Raises OSError or OptionError."""

    def replace(self, text: str) -> None:
        """Replace the content in one step. Raises OptionError."""

    def held(self) -> AbstractContextManager[None]:
        """Keep other jobs from the file inside the context, where this is possible. Raises
        OptionError if another job has it.
        """


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine. ``held`` locks a file beside it, which stays there."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def read(self) -> str | None:
        """Return the content; None if there is no file. Raises OSError."""
        return self.path.read_text() if self.path.exists() else None

    def replace(self, text: str) -> None:
        """Replace the content in one step. Raises OptionError."""
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            with new.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            raise OptionError(f"cannot write progress to {self.path}: {error.strerror}") from None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other jobs from the file inside the context. Raises OptionError if one has it."""
        try:
            import fcntl
        except ModuleNotFoundError:  # Windows
            yield
            return
        try:
            lock = self.path.with_name(f"{self.path.name}.lock").open("w")
        except OSError as error:
            raise OptionError(f"cannot write progress to {self.path}: {error.strerror}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OptionError(
                    f"another job is running with the progress file {self.path}: wait until it ends"
                ) from None
            except OSError:  # a file system without locks
                pass
            yield


@dataclass(slots=True)
class Progress:
    """Finished steps of a job.

    Args:
        file: None: no progress is stored.
        about: the job's settings; a job with other settings cannot continue.
        job: the job ID of the first run, part of the names of its messages.
        partitions: the number of tasks of the first run, part of the names too.
        run: the name of this run, which differs for each.
    """

    file: TextFile | None
    about: dict[str, str]
    job: str
    partitions: int
    done: list[str] = field(default_factory=list)
    run: str = field(default_factory=lambda: secrets.token_hex(8))

    @classmethod
    def read(
        cls, file: TextFile | None, about: Mapping[str, str], *, partitions: int, job: str
    ) -> Self:
        """Return the stored progress, or a new one with *partitions* and *job* without a file.
        Call ``keep`` before the first step.

        Raises OptionError.
        """
        new = cls(file, dict(about), job, partitions)
        try:
            text = None if file is None else file.read()
            if text is None:
                return new
            kept = json.loads(text)
            found = cls(file, dict(kept["about"]), kept["job"], kept["partitions"], kept["done"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OptionError(
                f"{file} is not a progress file ({error!r}): choose another file"
            ) from None
        if found.about != new.about:
            raise OptionError(
                f"{file} holds the progress of {_words(found.about)}, not of {_words(new.about)}:"
                " choose another file"
            )
        return found

    def add(self, *steps: str) -> None:
        """Record that *steps* are done. Raises OptionError if writing fails, or if another run has
        begun with the file.
        """
        self._check_run()
        self.done += steps
        self.keep()

    def keep(self) -> None:
        """Write the file, if there is one. Raises OptionError."""
        if self.file is None:
            return
        kept = {
            "about": self.about,
            "job": self.job,
            "partitions": self.partitions,
            "done": self.done,
            "run": self.run,
        }
        self.file.replace(json.dumps(kept))

    def _check_run(self) -> None:
        if self.file is None:
            return
        try:
            last = json.loads(self.file.read() or "null")["run"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OptionError(
                f"{self.file} is no longer the progress file of this job ({error!r}): run the job"
                " again with another file"
            ) from None
        if last != self.run:
            raise OptionError(
                f"another job has begun with the progress file {self.file}, so this one ends: run"
                " one at a time"
            )


def _words(about: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in about.items())
