"""What a peer is given, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bench.frame.context import RunContext
from bench.frame.figures import Figures


@dataclass(frozen=True, slots=True)
class Work:
    """Messages that stand in the queues before anybody comes, and what is done with each.

    They are those of ``bench.preload.Backlog(stuck=0, mixed=messages, share=0.0, keys=keys,
    seed=seed, body_bytes=body_bytes)``: the same keys in the same queues in the same order for all.
    A handler sleeps *work_ms*, or, with *least_work_ms*, an even chance from there up to *work_ms*;
    0 does nothing. *concurrency*: handlers at a time. *batch*: messages that a client takes at a
    time.
    """

    messages: int
    keys: int
    queues: int = 8
    body_bytes: int = 256
    work_ms: float = 0.0
    least_work_ms: float | None = None
    concurrency: int = 64
    batch: int = 256
    topic: str = "bench"
    seed: int = 1


class Peer(Protocol):
    """Something else that does the same work.

    Figures that count: ``per_s`` from the first to the last handling, ``seconds``, ``client_us``
    and ``broker_us`` processor time a message, ``faults`` messages of a key that came early or
    again, ``settings`` the options that it was given, ``version``.
    """

    @property
    def about(self) -> str:
        """One sentence for the document: what it is, of which version, with which settings."""

    def run(self, context: RunContext, work: Work) -> Figures:
        """Start what is needed, preload, consume all, stop. Raises what kept it from its end."""
