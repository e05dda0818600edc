"""Messages of a work."""

from __future__ import annotations

from bench.frame.peer import Work
from bench.preload import Backlog


def backlog_of(work: Work, *, grouped: bool = False) -> Backlog:
    """Return the backlog, the same for every peer: keys, bodies, and the queue of a key. *grouped*:
    the key is also the message group.
    """
    return Backlog(
        stuck=0,
        mixed=work.messages,
        share=0.0,
        keys=work.keys,
        seed=work.seed,
        body_bytes=work.body_bytes,
        grouped=grouped,
    )
