"""A cluster in virtual time: brokers, proxies, faults, and results."""

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

#: Time limit of a scenario.
_AT_MOST_NS = 240 * SECOND


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one scenario. Requests are the maximum in one second at one broker."""

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
    """The cluster as scenarios use it."""

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
        """Start a new process; on *host* if it replaces an earlier one."""
        host = self.chance.randrange(1 << 24) if host is None else host
        address = f"10.{host >> 16}.{host >> 8 & 255}.{host & 255}"
        name = f"{address}@1#{len(self.proxies)}"
        self.proxies[name] = self._proxy(name, self._around)
        self.proxies[name].begin()

    def live(self) -> list[Proxy]:
        """Return the running proxies."""
        return [each for each in self.proxies.values() if not each.dead]

    def cut(self, proxies: Iterable[Proxy], *, off: bool) -> None:
        """Cut or restore the connections of these proxies."""
        for each in proxies:
            each.links.cut(off=off)

    def stop_broker(self, name: str) -> None:
        """Stop it; the nameserver notices at once, the proxies by their connections."""
        self.brokers[name].stop()
        self._around.publish([queue for queue in self._queues if queue.broker != name])
        for each in self.live():
            self.events.after(self._network.delay_ns(), each.broker_lost, name)

    def start_broker(self, name: str) -> None:
        """Start it again, and register it."""
        self.brokers[name].start()
        self._around.publish(self._queues)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.events.run_until(self.events.now_ns + int(seconds * SECOND))

    def run_until_quiet(self) -> None:
        """Let time pass until all proxies have their share, or up to the limit."""
        end_ns = self.events.now_ns + _AT_MOST_NS
        while self.events.now_ns < end_ns:
            self.run(1)
            quiet_since_ns = self.events.now_ns - int(self.model.rest_s * SECOND)
            if self.judge.findings.last_move_ns > quiet_since_ns:
                continue
            if all(each.settled for each in self.live()) and not self.unserved():
                return

    def unserved(self) -> int:
        """Return the queues that no proxy delivers now."""
        return self.judge.unserved(self.events.now_ns)

    def begin(self) -> None:
        """Start a scenario."""
        self.judge.begin(self.events.now_ns)
        for broker in self.brokers.values():
            broker.server.asked.clear()

    def outcome(self, scenario: str, *, least_moves: int) -> Outcome:
        """Return the outcome of the scenario."""
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
        """Send a notice to each proxy that is not awake already."""
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
