"""Every parser by its name, with its seeds and the stored corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import parsers, seeds

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True, slots=True)
class Target:
    """One parser: its function, and valid inputs that a fuzzer may change."""

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]

    @property
    def corpus(self) -> Path:
        """Folder of the stored inputs: one for each path through the parser."""
        return CORPUS / self.name

    def kept(self) -> list[bytes]:
        """Return the corpus, by name of file."""
        return [path.read_bytes() for path in sorted(self.corpus.glob("*"))]


def _target(run: Callable[[bytes], None]) -> Target:
    return Target(run.__name__, run, getattr(seeds, run.__name__))


TARGETS = {
    target.name: target
    for target in map(
        _target,
        (
            parsers.remoting_frames,
            parsers.remoting_bodies,
            parsers.stored_messages,
            parsers.batch_bodies,
            parsers.encoded_messages,
            parsers.thrift_frames,
            parsers.ownership_records,
            parsers.audit_records,
            parsers.settings_files,
            parsers.json_paths,
            parsers.admin_requests,
            parsers.sql_filters,
            parsers.recall_handles,
        ),
    )
}
