"""Programs and commands of a page, for the folder of a reader who follows it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from testkit.processes import ROOT
from tests.support.doc_commands import Block, blocks_of, commands_of

_NAMED = re.compile(r"`([\w./-]+\.\w+)`:$")
#: The gateway of a reader.
USUAL = "127.0.0.1:9713"


@dataclass(frozen=True, slots=True)
class Page:
    """A document. Addresses of the usual gateway become *gateway*."""

    path: str
    gateway: str

    @property
    def blocks(self) -> list[Block]:
        return blocks_of(self.path, (ROOT / self.path).read_text())

    @property
    def files(self) -> dict[str, str]:
        """The files that it shows, by the names that end the paragraphs above them."""
        files: dict[str, str] = {}
        for block in self.blocks:
            if (name := _NAMED.search(block.before)) is not None:
                files.setdefault(name[1], self._here(block.text))  # commands may follow
        return files

    def write(self, folder: Path) -> None:
        """Write its files into *folder*."""
        for name, text in self.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def commands(self, section: str) -> list[str]:
        """The commands below a heading."""
        blocks = [block for block in self.blocks if block.section == section]
        assert blocks, f"{self.path} has no code below {section}"
        return [self._here(each.text) for each in commands_of(blocks)]

    def _here(self, text: str) -> str:
        return text.replace(USUAL, self.gateway)
