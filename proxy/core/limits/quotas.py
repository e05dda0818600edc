"""Quotas of principals: what one caller may use of a proxy, over all of its connections. Pure.

The rates are token buckets with a reserve of one second. A request is admitted while its buckets
are not empty, and then charged with its actual cost, on credit if necessary: the size of an answer
and the time on the event loop are known only afterwards. Requests that settle or extend leases are
never refused, only charged. Unauthenticated callers are charged to their address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields

from proxy.core.group.token_bucket import SECOND, TokenBucket

#: A topic or group counts for its principal until it was unused for this long.
NAME_KEPT_NS = 3_600 * SECOND
#: Addresses remembered; the one unused for the longest time is forgotten first.
MOST_ADDRESSES = 10_000
#: Longest advised wait: rates may be as low as a float.
_LONGEST_S = 86_400.0
#: Labels of all addresses, and of all principals that no setting names.
ADDRESSES, OTHERS = "(addresses)", "(others)"


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of one caller at one proxy; None: unlimited.

    Args:
        requests_per_s: Requests a second.
        bytes_per_s: Bytes of requests and answers a second.
        loop_share: Seconds of the event loop per second, 0 to 1.
        connections: Open connections, without those that only settle and extend.
        topics: Distinct topics in an hour.
        groups: Distinct groups in an hour.
    """

    requests_per_s: float | None = None
    bytes_per_s: float | None = None
    loop_share: float | None = None
    connections: int | None = None
    topics: int | None = None
    groups: int | None = None


#: Names of the limits, as in the settings.
LIMITS = tuple(each.name for each in fields(Quota))


@dataclass(frozen=True, slots=True)
class OverQuota:
    """A refusal: the limit's name, its value, and the seconds until a retry may succeed."""

    limit: str
    value: float
    retry_after_s: float

    def sentence(self, caller: str) -> str:
        """Return one sentence for *caller*."""
        return (
            f"{caller} is above its quota {self.limit} ({self.value:g}) at this proxy: try again in"
            f" {self.retry_after_s:.1f} s"
        )


@dataclass(slots=True)
class Usage:
    """Totals of a caller since the proxy started; ``refused`` by limit."""

    requests: int = 0
    bytes: int = 0
    loop_ns: int = 0
    connections: int = 0
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LIMITS, 0))


def _bucket(rate: float | None, now_ns: int, *, least: float = 0) -> TokenBucket | None:
    if rate is None:
        return None
    capacity = max(rate, least)
    made = TokenBucket(rate, capacity, capacity)
    made.fill(now_ns)
    return made


class Account:
    """The usage of one caller, over all of its connections. Times are monotonic."""

    def __init__(self, quota: Quota, usage: Usage, now_ns: int) -> None:
        self.quota = quota
        #: Shared with other callers that have the same label.
        self.usage = usage
        self.connections = 0
        self._requests = _bucket(quota.requests_per_s, now_ns, least=1)
        self._bytes = _bucket(quota.bytes_per_s, now_ns)
        self._loop = _bucket(quota.loop_share, now_ns)
        self._names: dict[str, dict[str, int]] = {"topics": {}, "groups": {}}

    def admit(self, now_ns: int) -> OverQuota | None:
        """Count a request; return its refusal if a rate is exceeded."""
        self.usage.requests += 1
        for limit, bucket, wanted in (
            ("requests_per_s", self._requests, 1.0),
            ("bytes_per_s", self._bytes, 0.0),
            ("loop_share", self._loop, 0.0),
        ):
            if bucket is None:
                continue
            bucket.fill(now_ns)
            if bucket.tokens < wanted - 1e-6:
                missing = wanted - bucket.tokens
                return self._refuse(limit, missing / bucket.rate)
        if self._requests is not None:
            self._requests.take(1)
        return None

    def serve(self, now_ns: int) -> None:
        """Count a request that is served above the rates too. It takes a token only if there is
        one, so that others are not refused for longer.
        """
        self.usage.requests += 1
        if self._requests is not None:
            self._requests.fill(now_ns)
            self._requests.take(min(1.0, max(0.0, self._requests.tokens)))

    @property
    def counts_names(self) -> bool:
        """Whether the number of its topics or groups is limited."""
        return self.quota.topics is not None or self.quota.groups is not None

    def admit_names(self, limit: str, names: Iterable[str], now_ns: int) -> OverQuota | None:
        """Note the use of *names*; *limit* is ``topics`` or ``groups``. Return a refusal if there
        would be more than it allows; none of *names* is noted then.
        """
        most: int | None = getattr(self.quota, limit)
        if most is None:
            return None
        known = self._names[limit]
        wanted = dict.fromkeys(names)
        new = sum(name not in known for name in wanted)
        if len(known) + new > most:
            for name, used_ns in list(known.items()):  # the longest unused one first
                if now_ns - used_ns < NAME_KEPT_NS:
                    break
                del known[name]
            new = sum(name not in known for name in wanted)
            if len(known) + new > most:
                oldest_ns = next(iter(known.values()), now_ns)
                return self._refuse(limit, (oldest_ns + NAME_KEPT_NS - now_ns) / SECOND)
        for name in wanted:
            known.pop(name, None)
            known[name] = now_ns
        return None

    def connect(self) -> OverQuota | None:
        """Count a connection, or return a refusal."""
        most = self.quota.connections
        if most is not None and self.connections >= most:
            return self._refuse("connections", 1.0)
        self.connections += 1
        self.usage.connections += 1
        return None

    def disconnect(self) -> None:
        """Note the end of a counted connection."""
        self.connections -= 1
        self.usage.connections -= 1

    def spend(self, *, size_bytes: int = 0, loop_ns: int = 0) -> None:
        """Charge bytes and time on the event loop, on credit if necessary."""
        self.usage.bytes += size_bytes
        self.usage.loop_ns += loop_ns
        if size_bytes and self._bytes is not None:
            self._bytes.take(size_bytes)
        if loop_ns and self._loop is not None:
            self._loop.take(loop_ns / SECOND)

    def names(self, limit: str) -> int:
        """Return the number of counted names; *limit* is ``topics`` or ``groups``."""
        return len(self._names[limit])

    def _refuse(self, limit: str, after_s: float) -> OverQuota:
        self.usage.refused[limit] += 1
        return OverQuota(
            limit, float(getattr(self.quota, limit)), min(max(0.1, after_s), _LONGEST_S)
        )


class Quotas:
    """The accounts of all callers of a process.

    *default*: the quota of callers without one of their own. *named*: quotas by principal. *known*:
    principals with a label of their own; the settings name them, so their number is bounded.
    """

    def __init__(
        self,
        default: Quota | None = None,
        named: Mapping[str, Quota] | None = None,
        known: Iterable[str] = (),
    ) -> None:
        self._default = default or Quota()
        self._named = dict(named or {})
        self._labels = {*known, *self._named}
        labels = [*self._labels, OTHERS, ADDRESSES] if self else []
        self._usages = {label: Usage() for label in labels}
        self._principals: dict[str, Account] = {}
        self._addresses: dict[str, Account] = {}

    def __bool__(self) -> bool:
        """Whether requests have to be counted."""
        return bool(self._labels) or self._default != Quota()

    def of_principal(self, name: str, now_ns: int) -> Account:
        """Return the account of a principal."""
        account = self._principals.get(name)
        if account is None:
            _make_room(self._principals)
            label = name if name in self._labels else OTHERS
            quota = self._named.get(name, self._default)
            account = self._principals[name] = Account(quota, self._usage(label), now_ns)
        return account

    def of_address(self, address: str, now_ns: int) -> Account:
        """Return the account of an unauthenticated address."""
        account = self._addresses.pop(address, None)
        if account is None:
            _make_room(self._addresses)
            account = Account(self._default, self._usage(ADDRESSES), now_ns)
        self._addresses[address] = account
        return account

    def usages(self) -> Mapping[str, Usage]:
        """Return the totals by label."""
        return self._usages

    def accounts(self) -> Iterator[tuple[str, Account]]:
        """Iterate over the principals seen so far."""
        return iter(tuple(self._principals.items()))

    def _usage(self, label: str) -> Usage:
        return self._usages.setdefault(label, Usage())


def _make_room(accounts: dict[str, Account]) -> None:
    if len(accounts) >= MOST_ADDRESSES:
        idle = next((name for name, each in accounts.items() if not each.connections), None)
        del accounts[next(iter(accounts)) if idle is None else idle]
