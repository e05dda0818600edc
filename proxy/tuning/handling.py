"""How a group's clients handle messages, as they report it, and how to simulate them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.core.jobs.hand_out import HandOut
from proxy.tuning.observed_times import ObservedTimes
from proxy.tuning.service_times import ServiceTimes
from proxy.tuning.simulator import Plan
from thin_client.figures import bounds_ns, class_of

#: Fewer times say too little about a distribution, or about a round trip.
_ENOUGH_TIMES, _ENOUGH_ROUND_TRIPS = 100, 20


@dataclass(frozen=True, slots=True)
class Handling:
    """Numbers of clients, of their handlers and of messages that may wait at them; handling times
    and round trips by class (``thin_client.figures``).
    """

    clients: int = 0
    handlers: int = 0
    prefetch: int = 0
    times: Mapping[int, int] = field(default_factory=dict)
    round_trips: Mapping[int, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON, with counts by the first time of each class, in µs. Figures of times
        that no client reported are None.
        """
        times = ObservedTimes.of(self.times) if self.times else None
        trips = ObservedTimes.of(self.round_trips) if self.round_trips else None
        return {
            "clients": self.clients,
            "handlers": self.handlers,
            "prefetch": self.prefetch,
            "messages": times.number if times else 0,
            "mean_ms": times and times.mean_ms,
            "p50_ms": times and times.percentile_ms(50),
            "p99_ms": times and times.percentile_ms(99),
            "requests": trips.number if trips else 0,
            "round_trip_ms": trips and trips.mean_ms,
            "handling_us": _by_time(self.times),
            "round_trips_us": _by_time(self.round_trips),
        }

    @classmethod
    def merged(cls, answers: Iterable[Mapping[str, Any]]) -> Handling:
        """Return the sum of ``as_dict`` of several proxies, which have different clients."""
        times: Counter[int] = Counter()
        trips: Counter[int] = Counter()
        totals: Counter[str] = Counter()
        for each in answers:
            totals.update({name: each[name] for name in ("clients", "handlers", "prefetch")})
            times.update(_by_class(each["handling_us"]))
            trips.update(_by_class(each["round_trips_us"]))
        return cls(totals["clients"], totals["handlers"], totals["prefetch"], times, trips)

    @property
    def knows_round_trip(self) -> bool:
        """Whether clients reported enough round trips."""
        return sum(self.round_trips.values()) >= _ENOUGH_ROUND_TRIPS

    def plan(
        self,
        workers: int | None,
        service: ServiceTimes | None,
        *,
        round_trip_ns: int | None,
        seed: int = 1,
        hand_out: HandOut = HandOut.OLDEST,
        max_leased: int | None = None,
    ) -> Plan:
        """Return the plan of such clients.

        Args:
            workers: concurrent handlers; None: those of the clients.
            service: handling times; None: those that the clients reported.
            round_trip_ns: the round trip; None: those that the clients reported.
            seed: random seed of the times.
            hand_out: delivery policy of the group.
            max_leased: its maximum number of leased messages; None: no limit.

        Raises ValueError with one sentence for a missing value that the clients did not report
        either, or from too few messages.
        """
        times: ServiceTimes | ObservedTimes
        if service is not None:
            times = service
        elif (number := sum(self.times.values())) < _ENOUGH_TIMES:
            raise ValueError(
                f"its clients reported the handling times of {number} messages, and at least"
                f" {_ENOUGH_TIMES} are needed: let it handle more, or give the times (clients in"
                " other languages than Python do not report them)"
            )
        else:
            times = ObservedTimes.of(self.times, seed=seed)
        if workers is None and not self.handlers:
            raise ValueError("its clients did not report their handlers: give the number")
        trips = None
        if round_trip_ns is None:
            trips = ObservedTimes.of(self.round_trips, seed=seed)
            round_trip_ns = round(trips.mean_ms * 1e6)
        limit = {} if max_leased is None else {"max_leased": max_leased}
        return Plan(
            workers or self.handlers,
            times,
            round_trip_ns,
            prefetch=self._prefetch_of_one(),
            hand_out=hand_out,
            clients=max(1, self.clients),
            round_trips=trips,
            **limit,
        )

    def _prefetch_of_one(self) -> int | None:
        """Return the waiting messages of one client, if they differ from its handlers."""
        if not self.clients or self.prefetch == self.handlers:
            return None
        return self.prefetch // self.clients


def _by_time(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(bounds_ns(place)[0] // 1000): count for place, count in sorted(counts.items())}


def _by_class(counts: Mapping[str, int]) -> dict[int, int]:
    return {class_of(int(us) * 1000): count for us, count in counts.items()}
