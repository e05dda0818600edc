"""A cluster in virtual time: brokers, proxies, what befalls them, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bench.simulation.brokers import TOPIC, Broker
from bench.simulation.events import SECOND, Events
from bench.simulation.judge import Judge
from bench.simulation.links import Surroundings
from bench.simulation.model import Model
from bench.simulation.network import Server
from bench.simulation.proxies import Proxy
from broker_core.names import QueueName

#: A scenario ends then at the latest.
_AT_MOST_NS = 240 * SECOND


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one scenario. Requests are those of one second at one broker, at worst."""

    scenario: str
    settled_s: float
    moves: int
    least_moves: int
    gap_p50_s: float
    gap_p99_s: float
    gap_worst_s: float
    unserved: int
    unsettled: int
    peaks: dict[str, int]
    faults: int


class World:
    """What scenarios drive."""

    def __init__(self, model: Model, *, proxy: type[Proxy] = Proxy) -> None:
        self.model, self.events = model, Events()
        self._queues = _queues(model)
        self.judge = Judge(self._queues)
        names = sorted({queue.broker for queue in self._queues})
        self.brokers = {
            name: Broker(Server(name), model, self.events, self._tell) for name in names
        }
        self._around = Surroundings(model, self.events, self.judge, self.brokers)
        self._around.publish(self._queues)
        self.chance, self._network = self._around.chance, self._around.network
        self._proxy = proxy
        self.proxies: dict[str, Proxy] = {}
        self.events.after(SECOND, self._expire)

    def start_proxy(self, host: int | None = None) -> None:
        """A new process; on *host* if it takes the place of one that was there."""
        host = self.chance.randrange(1 << 24) if host is None else host
        address = f"10.{host >> 16}.{host >> 8 & 255}.{host & 255}"
        name = f"{address}@1#{len(self.proxies)}"
        self.proxies[name] = self._proxy(name, self._around)
        self.proxies[name].begin()

    def live(self) -> list[Proxy]:
        """Those that were not ended."""
        return [each for each in self.proxies.values() if not each.dead]

    def cut(self, proxies: Iterable[Proxy], *, off: bool) -> None:
        """Nothing arrives from or at these, or again."""
        for each in proxies:
            each.links.cut(off=off)

    def stop_broker(self, name: str) -> None:
        """It ends; the nameserver sees it at once, the proxies by their connections."""
        self.brokers[name].stop()
        self._around.publish([queue for queue in self._queues if queue.broker != name])
        for each in self.live():
            self.events.after(self._network.delay_ns(), each.broker_lost, name)

    def start_broker(self, name: str) -> None:
        """It is back, and registered."""
        self.brokers[name].start()
        self._around.publish(self._queues)

    def run(self, seconds: float) -> None:
        """Time passes."""
        self.events.run_until(self.events.now_ns + int(seconds * SECOND))

    def run_until_quiet(self) -> None:
        """Time passes until everybody has what it should have, or for very long."""
        end_ns = self.events.now_ns + _AT_MOST_NS
        while self.events.now_ns < end_ns:
            self.run(1)
            quiet_since_ns = self.events.now_ns - int(self.model.rest_s * SECOND)
            if self.judge.findings.last_move_ns > quiet_since_ns:
                continue
            if all(each.settled for each in self.live()) and not self.unserved():
                return

    def unserved(self) -> int:
        """Queues that nobody hands out now."""
        return self.judge.unserved(self.events.now_ns)

    def begin(self) -> None:
        """A scenario begins."""
        self.judge.begin(self.events.now_ns)
        for broker in self.brokers.values():
            broker.server.asked.clear()

    def outcome(self, scenario: str, *, least_moves: int) -> Outcome:
        """What came of the scenario."""
        findings = self.judge.findings
        gaps = sorted(findings.gaps_ns) or [0]
        peaks: dict[str, int] = {}
        for broker in self.brokers.values():
            for kind, seconds in broker.server.asked.items():
                peaks[kind] = max(peaks.get(kind, 0), *seconds.values())
        return Outcome(
            scenario,
            settled_s=(findings.last_move_ns - findings.since_ns) / 1e9,
            moves=findings.moves,
            least_moves=least_moves,
            gap_p50_s=gaps[len(gaps) // 2] / 1e9,
            gap_p99_s=gaps[len(gaps) * 99 // 100] / 1e9,
            gap_worst_s=gaps[-1] / 1e9,
            unserved=self.unserved(),
            unsettled=sum(not each.settled for each in self.live()),
            peaks=peaks,
            faults=len(self.judge.faults),
        )

    def _tell(self, broker: Broker, members: Iterable[str]) -> None:
        """A notice to each that is not awake already."""
        for name in list(members):
            proxy = self.proxies[name]
            if proxy.notice():
                self.events.after(self._network.delay_ns(), proxy.wake)

    def _expire(self) -> None:
        for broker in self.brokers.values():
            broker.expire()
        self.events.after(SECOND, self._expire)


def _queues(model: Model) -> list[QueueName]:
    digits = len(str(model.brokers))
    return sorted(
        QueueName(TOPIC, f"broker-{number % model.brokers:0{digits}}", number // model.brokers)
        for number in range(model.queues)
    )
