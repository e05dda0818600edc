"""Wall clocks that jump, each of one process, while the machine's own stays as it is.

A small library, loaded before the C library, adds what stands in a file to what processes are told.
Programs written in Go do not ask the C library: their clocks cannot be moved so.
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
    """None: this machine has no C compiler, and no clock can be moved."""

    @classmethod
    def open(cls, folder: Path) -> Clocks:
        """Compile the library into *folder*."""
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.which("gcc") is None:
            return cls(folder)
        library = folder / "clock_shift.so"
        command = ["gcc", "-O2", "-Wall", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"]
        subprocess.run(command, check=True, timeout=60)
        return cls(folder, library)

    def environment(self, host: str) -> dict[str, str]:
        """What a process gets whose clock is to be that of *host*."""
        if self.library is None:
            return {}
        if not self._file(host).exists():
            self.move(host, 0)
        return {"LD_PRELOAD": str(self.library), "CHAOS_CLOCK": str(self._file(host))}

    def move(self, host: str, seconds: float) -> None:
        """From now on the clock of *host* is so far ahead of the right time, or behind it."""
        ahead = struct.pack("=q", int(seconds * 1e9))
        try:
            with self._file(host).open("r+b") as file:  # processes have it mapped
                file.write(ahead)
        except FileNotFoundError:
            self._file(host).write_bytes(ahead)

    def _file(self, host: str) -> Path:
        return self.folder / host.replace(" ", "-")
