"""Input and output of a peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bench.frame.context import RunContext
from bench.frame.figures import Figures


@dataclass(frozen=True, slots=True)
class Work:
    """A stored backlog, and the handling of its messages.

    The messages are those of ``bench.preload.Backlog(stuck=0, mixed=messages, share=0.0, keys=keys,
    seed=seed, body_bytes=body_bytes)``: for all peers the same keys in the same queues in the same
    order. A handler sleeps *work_ms* or, with *least_work_ms*, uniformly between both; 0 does
    nothing. *concurrency*: parallel handlers. *batch*: messages that a client takes at a time.
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
    """Another product that does the same work.

    Required figures: ``per_s`` from the first to the last handling, ``seconds``, ``client_us`` and
    ``broker_us`` processor time per message, ``faults`` early or repeated messages of a key,
    ``settings`` its options, ``version``.
    """

    @property
    def about(self) -> str:
        """Return one sentence for the document: product, version and settings."""

    def run(self, context: RunContext, work: Work) -> Figures:
        """Start, preload, consume all, stop. Raises the error that stopped the run."""
