"""Peers under an open load: messages arrive at their due times, whether or not earlier ones are
handled. Their delays, and how long messages wait when a process of the peer ends.
"""

from __future__ import annotations

import signal
import statistics
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from bench.frame.context import RunContext
from bench.frame.progress import Counter
from bench.load.delays import Delays
from bench.peers import order_record
from bench.peers.java_programs import PeerFailed, clock_ns, printed, start
from broker_core.clock import now_ns
from testkit.processes import wait_until

_HANDLED = struct.Struct(">iiqqq")
#: Low loads before the measured one, until every consumer has messages: their rate, length, number.
_WARM_RATE, _WARM_MESSAGES, _WARM_TURNS = 100.0, 200, 20
_WARM_S = 1.0
_JOIN_S, _LAST_S = 120.0, 240.0
#: Places in a consumer's record besides the expected messages: warm-up and repeats.
_SPARE = 20_000


@dataclass(frozen=True, slots=True)
class OpenWork:
    """A load of *rate* messages a second for *seconds*, with *keys* keys in *queues* queues, for
    consumers with *concurrency* handlers that work *work_ms* a message.
    """

    rate: float
    seconds: float
    keys: int = 1_000
    queues: int = 8
    body_bytes: int = 256
    concurrency: int = 64
    work_ms: float = 0.0
    topic: str = "bench"
    seed: int = 7

    @property
    def count(self) -> int:
        """Number of messages."""
        return int(self.rate * self.seconds)


class Handled(NamedTuple):
    """One handling; times by ``now_ns``."""

    key: int
    number: int
    due_ns: int
    begin_ns: int
    end_ns: int


class Site(Protocol):
    """A running peer."""

    def start_consumer(self, number: int, options: Mapping[str, object], folder: Path) -> Consumer:
        """Start consumer *number*; *options* are those of its work."""

    def send(self, *, rate: float, count: int) -> None:
        """Send *count* messages at random instants with the mean *rate*; return once all are
        stored.
        """

    def process_to_end(self, consumer: Consumer) -> subprocess.Popen[bytes]:
        """Return the process whose end is measured: what serves *consumer*."""


class OpenPeer(Protocol):
    """Another product under an open load."""

    @property
    def about(self) -> str:
        """Return one sentence for the document: product, version and settings."""

    def site(
        self, context: RunContext, work: OpenWork, *, consumers: int
    ) -> AbstractContextManager[Site]:
        """Run the product for a number of *consumers*, which are started later. Raises the error
        that stopped it.
        """


@dataclass(slots=True)
class Consumer:
    """A consumer in Java, and its record."""

    main: str
    process: subprocess.Popen[bytes]
    folder: Path
    counter: Counter

    @property
    def count(self) -> int:
        """Number of handlings so far."""
        return self.counter.value

    def check(self) -> None:
        """Raise PeerFailed if it has ended."""
        if self.process.poll() is not None:
            raise PeerFailed(f"{self.main} ended; {printed(self.main, self.folder, '.err')}")

    def end(self) -> None:
        """Let it end, or kill it after a while; do nothing if it has ended."""
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=30)
        self.process.kill()
        self.process.wait()

    def handlings(self) -> list[Handled]:
        """Return its finished handlings, in no order."""
        found = _HANDLED.iter_unpack((self.folder / "record").read_bytes())
        return [Handled(*each) for each in found if each[3]]


def start_consumer(
    class_path: str, main: str, options: Mapping[str, object], folder: Path
) -> Consumer:
    """Start *main* as a consumer with its record in *folder*."""
    folder.mkdir(parents=True)
    counter = Counter(folder / "handled")
    process = start(class_path, main, options, folder, stdin=subprocess.PIPE)
    return Consumer(main, process, folder, counter)


def delays(peer: OpenPeer, context: RunContext, work: OpenWork) -> dict[str, float]:
    """Return the delays of *work* from the due times to the handlers. Raises PeerFailed if the peer
    broke the order of a key, or lost messages.
    """
    with (
        peer.site(context, work, consumers=1) as site,
        _consumers(site, context, work, count=1) as [consumer],
    ):
        warm = _warm_up(site, [consumer])
        began_ns = now_ns()
        site.send(rate=work.rate, count=work.count)
        sent_s = time.monotonic()
        _wait_until_handled([consumer], began_ns, work, warm=warm)
        behind_s = time.monotonic() - sent_s
        consumer.end()
        found = _measured([consumer], began_ns)
    judged = _judge(found)
    if judged.faults or judged.distinct != work.count:
        raise PeerFailed(f"{consumer.main}, of {work.count} messages: {judged}")
    taken = Delays(from_ns=min(each.due_ns for each in found) + int(_WARM_S * 1e9))
    for each in found:
        taken.add(each.due_ns, each.begin_ns)
    return {**taken.figures(), "behind_s": behind_s, "faults": judged.faults}


@dataclass(frozen=True, slots=True)
class Outage:
    """The effect of the end of a process on messages.

    *gap_worst_s*, *gap_median_s*: longest wait for a handler, over the messages of each key that
    the ended process served last; *pause_s*: over those of all keys. *again*: repeated handlings;
    *duplicates*: those of messages whose handling had ended; *faults*: early or overlapping ones.
    """

    gap_worst_s: float
    gap_median_s: float
    pause_s: float
    again: int
    duplicates: int
    faults: int
    sent: int


def outage(
    peer: OpenPeer,
    context: RunContext,
    work: OpenWork,
    *,
    end: str,
    before_s: float,
    stop_s: float,
) -> Outage:
    """End the process that serves one of two consumers after *before_s* under load, by the signal
    *end*; SIGSTOP lasts *stop_s*. Raises AssertionError if messages are not handled in time.
    """
    with (
        peer.site(context, work, consumers=2) as site,
        _consumers(site, context, work, count=2) as consumers,
        ThreadPoolExecutor(1) as beside,
    ):
        warm = _warm_up(site, consumers)
        began_ns = now_ns()
        sending = beside.submit(site.send, rate=work.rate, count=work.count)
        time.sleep(before_s)
        process = site.process_to_end(consumers[0])
        ended_ns = now_ns()
        process.send_signal(signal.Signals[end])
        if end == "SIGSTOP":
            time.sleep(stop_s)
            process.send_signal(signal.SIGCONT)
        sending.result(timeout=work.seconds + _LAST_S)
        _wait_until_handled(consumers, began_ns, work, warm=warm)
        for consumer in consumers:
            consumer.end()
        own = _measured(consumers[:1], began_ns)
        return judge_outage(own, _measured(consumers, began_ns), ended_ns, sent=work.count)


def judge_outage(
    own: Iterable[Handled], handlings: Sequence[Handled], ended_ns: int, *, sent: int
) -> Outage:
    """Judge all *handlings* of a load whose process for *own* ended at *ended_ns*."""
    last: dict[int, tuple[int, bool]] = {}  # by key: its last handling before the end
    mine = set(own)
    firsts: dict[tuple[int, int], Handled] = {}
    for each in sorted(handlings, key=lambda each: each.begin_ns):
        if each.begin_ns <= ended_ns:
            last[each.key] = each.begin_ns, each in mine
        firsts.setdefault((each.key, each.number), each)
    waits: dict[int, int] = {}
    for each in firsts.values():
        if each.begin_ns > ended_ns:
            waits[each.key] = max(waits.get(each.key, 0), each.begin_ns - each.due_ns)
    served = [wait for key, wait in waits.items() if last.get(key, (0, False))[1]]
    judged = _judge(handlings)
    again = [each for each in handlings if firsts[each.key, each.number].begin_ns < each.begin_ns]
    duplicates = sum(firsts[each.key, each.number].end_ns <= each.begin_ns for each in again)
    return Outage(
        gap_worst_s=max(served, default=0) / 1e9,
        gap_median_s=statistics.median(served or [0]) / 1e9,
        pause_s=max(waits.values(), default=0) / 1e9,
        again=len(again),
        duplicates=duplicates,
        faults=judged.early + judged.overlapping,
        sent=sent,
    )


@contextmanager
def _consumers(
    site: Site, context: RunContext, work: OpenWork, *, count: int
) -> Iterator[list[Consumer]]:
    consumers: list[Consumer] = []
    try:
        for number in range(count):
            folder = context.folder / f"consumer-{number}"
            options = {
                "open": 2 * work.count + _SPARE,
                "clock-ns": clock_ns(),
                "work-us": round(work.work_ms * 1000),
                "concurrency": work.concurrency,
                "record": folder / "record",
                "counter": folder / "handled",
            }
            consumers.append(site.start_consumer(number, options, folder))
        yield consumers
    finally:
        for each in consumers:
            each.process.kill()
            each.process.wait()


def _warm_up(site: Site, consumers: Sequence[Consumer]) -> int:
    """Send a few messages at a time until every consumer handles some; return their number.

    Raises PeerFailed if a consumer gets none.
    """
    for turn in range(1, _WARM_TURNS + 1):
        site.send(rate=_WARM_RATE, count=_WARM_MESSAGES)
        _wait_for(turn * _WARM_MESSAGES, consumers, within_s=_JOIN_S)
        if all(each.count > 0 for each in consumers):
            return turn * _WARM_MESSAGES
    counts = [each.count for each in consumers]
    raise PeerFailed(f"a consumer gets no messages; messages handled by each: {counts}")


def _wait_for(messages: int, consumers: Sequence[Consumer], *, within_s: float = _LAST_S) -> None:
    def done() -> bool:
        for each in consumers:
            each.check()
        return sum(each.count for each in consumers) >= messages

    wait_until(done, within_s=within_s, what=f"{messages} messages handled")


def _wait_until_handled(
    consumers: Sequence[Consumer], began_ns: int, work: OpenWork, *, warm: int
) -> None:
    """Wait until all messages of *work* are handled; some may be repeated, like the *warm* ones."""

    def done() -> bool:
        if sum(each.count for each in consumers) < warm + work.count:
            return False
        return len({each[:2] for each in _measured(consumers, began_ns)}) >= work.count

    wait_until(done, within_s=_LAST_S, what=f"{work.count} messages handled")


def _measured(consumers: Iterable[Consumer], began_ns: int) -> list[Handled]:
    found = (each for consumer in consumers for each in consumer.handlings())
    return [each for each in found if each.due_ns >= began_ns]


def _judge(handlings: Iterable[Handled]) -> order_record.Judgement:
    return order_record.judge(
        sorted((each.key, each.begin_ns, each.number, each.end_ns) for each in handlings)
    )
