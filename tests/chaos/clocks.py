"""Wall clocks that jump for single processes, while the machine's own clock is unchanged.

A small library, loaded before the C library, adds an offset from a file to the time that processes
read. Go programs do not use the C library for time, so their clocks cannot be moved.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock_shift.c")


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of the processes of a run; files in *folder*."""

    folder: Path
    library: Path | None = None
    """None: no C compiler, so clocks cannot be moved."""

    @classmethod
    def open(cls, folder: Path) -> Clocks:
        """Compile the library into *folder*."""
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.which("gcc") is None:
            return cls(folder)
        library = folder / "clock_shift.so"
        command = [
            "gcc",
            "-O2",
            "-Wall",
            "-shared",
            "-fPIC",
            "-o",
            str(library),
            str(_SOURCE),
            "-ldl",
        ]
        subprocess.run(command, check=True, timeout=60)
        return cls(folder, library)

    def environment(self, host: str) -> dict[str, str]:
        """Return the environment of a process with the clock of *host*."""
        if self.library is None:
            return {}
        if not self._file(host).exists():
            self.move(host, 0)
        return {"LD_PRELOAD": str(self.library), "CHAOS_CLOCK": str(self._file(host))}

    def move(self, host: str, seconds: float) -> None:
        """Set the offset of *host*'s clock from the right time."""
        ahead = struct.pack("=q", int(seconds * 1e9))
        try:
            with self._file(host).open("r+b") as file:  # processes have it mapped
                file.write(ahead)
        except FileNotFoundError:
            self._file(host).write_bytes(ahead)

    def _file(self, host: str) -> Path:
        return self.folder / host.replace(" ", "-")
