"""Laws: rules that hold in every case, whatever the proxy does.

Each is a generator of sentences; the name of its function is the law's name in ``waives``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.conformance.clients.cases import Case
from tests.conformance.clients.stage import CaseProxy, LeaseName
from tests.conformance.clients.trace import NEW_LIFE, Trace

_OUTCOMES = ("ok", "retry", "reject", "defer")
_CONTROL = ("settle", "extend")
#: More settles than this for one verdict is a storm.
Law = Callable[[Trace, Case, Mapping[str, CaseProxy]], Iterator[str]]


def lines(trace: Trace, case: Case, proxies: Mapping[str, CaseProxy]) -> Iterator[str]:
    """Every start has one end, no end lacks a start, and nothing starts twice at once."""
    open_now: dict[tuple[Any, Any], dict[str, Any]] = {}
    for event in trace.of("start", "end", "lost", "error", NEW_LIFE):
        m = event.members
        if event.kind == NEW_LIFE:
            open_now = {}
            continue
        if event.kind == "error":
            if m.get("kind") not in ("connection", "refused", "fault", "protocol"):
                yield f"an invalid line: {m}"
            continue
        name = (m.get("queue"), m.get("lease"))
        if event.kind == "start":
            if name in open_now:
                yield f"lease {name} started while it was handled"
            open_now[name] = m
        elif name not in open_now:
            yield f"{event.kind} of lease {name}, which was not handled"
        elif event.kind == "end":
            if m.get("outcome") not in _OUTCOMES or m.get("offset") != open_now[name]["offset"]:
                yield f"an invalid end of lease {name}: {m}"
            del open_now[name]
    if open_now and not _killed(case):
        yield f"handlers never ended: {sorted(map(str, open_now))}"


def one_handler_a_key(trace: Trace, case: Case, proxies: Mapping[str, CaseProxy]) -> Iterator[str]:
    """S6: at most one message of an order key is with a handler, even if the proxy errs."""
    handled: dict[tuple[Any, Any], Any] = {}
    for event in trace.of("start", "end", NEW_LIFE):
        m = event.members
        if event.kind == NEW_LIFE:
            handled = {}
        elif event.kind == "start" and m.get("order_key") is not None:
            key = (m["topic"], m["order_key"])
            if key in handled:
                yield f"leases {handled[key]} and {_place(m)} of key {key} at the same time"
            handled[key] = _place(m)
        elif event.kind == "end":
            handled = {key: lease for key, lease in handled.items() if lease != _place(m)}


def concurrency(trace: Trace, case: Case, proxies: Mapping[str, CaseProxy]) -> Iterator[str]:
    """S7: there are never more handlers than allowed."""
    limit = 1 if case.client.form == "iterator" else case.client.concurrency or 8
    now = most = 0
    for event in trace.of("start", "end", NEW_LIFE):
        now = 0 if event.kind == NEW_LIFE else now + (1 if event.kind == "start" else -1)
        most = max(most, now)
    if case.client.form != "batches" and most > limit:
        yield f"{most} parallel handlers, {limit} are allowed"


def who_asks(trace: Trace, case: Case, proxies: Mapping[str, CaseProxy]) -> Iterator[str]:
    """Every request names its client consistently, and carries the token."""
    for event in trace.events:
        if event.request is None:
            continue
        m = event.members
        messages = m["messages"] if event.kind == "sendBatchSync" else [m]
        if any(each.get("token") != case.client.token for each in messages):
            yield f"{event.kind} carries the token {[each.get('token') for each in messages]}"
        if event.kind in ("pull", *_CONTROL):
            if m.get("groupId") != case.client.group:
                yield f"{event.kind} is of group {m.get('groupId')!r}"
            wanted = case.client.client_id
            if not m.get("clientId") or (wanted and m["clientId"] != wanted):
                yield f"{event.kind} is of client {m.get('clientId')!r}"
        if event.kind in ("pull", "sendSync") and "orderlane-" not in m.get("version", ""):
            yield f"{event.kind} has the version {m.get('version')!r}: expected orderlane-…/…"


def pull_ids(trace: Trace, case: Case, proxies: Mapping[str, CaseProxy]) -> Iterator[str]:
    """S9: a pull has an id, and a new one after the last was answered."""
    if case.client.mode != "consume":
        return
    answered: set[str] = set()
    for event in trace.of("pull"):
        asked = event.members.get("requestId")
        if not asked or len(asked) > 256:
            yield f"a pull has the id {asked!r}"
        elif asked in answered:
            yield f"the id {asked} was used again after its answer"
        assert event.request is not None
        if event.request.answered and asked:
            answered.add(asked)


def pull_shape(trace: Trace, case: Case, proxies: Mapping[str, CaseProxy]) -> Iterator[str]:
    """A pull accepts several queues, asks for messages, and may wait."""
    for event in trace.of("pull"):
        m = event.members
        if m.get("manyQueues") is not True:
            yield "a pull does not accept batches of several queues"
        if m.get("maxBatchSize", 0) < 1:
            yield f"a pull asks for {m.get('maxBatchSize')} messages"
        if case.client.mode == "consume" and not 20 <= m.get("maxLingerTime", 0) <= 30_000:
            yield f"a pull waits for {m.get('maxLingerTime')} ms"
        if m.get("topic") is not None and m.get("topics") is not None:
            yield "a pull has topic and topics"


def one_verdict(trace: Trace, case: Case, proxies: Mapping[str, CaseProxy]) -> Iterator[str]:
    """S3: a lease gets one verdict, resent only after the request that carried it failed."""
    said: dict[LeaseName, str] = {}
    confirmed: set[LeaseName] = set()
    for event in trace.of("pull", "settle"):
        assert event.request is not None
        carried = list(_told(event.request))
        for lease, count in Counter(lease for lease, _ in carried).items():
            if count > 1:
                yield f"lease {lease} appears {count} times in one request"
        for lease, verdict in carried:
            if said.setdefault(lease, verdict) != verdict:
                yield f"lease {lease} got {said[lease]}, then {verdict}"
            if lease in confirmed:
                yield f"the verdict on lease {lease} was resent after it was confirmed"
        if event.request.answered:
            confirmed.update(lease for lease, _ in carried)


def verdicts_are_outcomes(
    trace: Trace, case: Case, proxies: Mapping[str, CaseProxy]
) -> Iterator[str]:
    """Verdicts match the outcomes of handlers."""
    if case.client.mode != "consume":
        return
    ends = {_place(event.members): event.members["outcome"] for event in trace.of("end")}
    started = {_place(event.members) for event in trace.of("start")}
    for event in trace.of("pull", "settle"):
        for (_, *place), verdict in _told(event.request):
            name = tuple(place)
            if name not in started and verdict != "defer":
                yield f"lease {name} got {verdict}, but was never handled"
            if ends.get(name, verdict) != verdict:
                yield f"lease {name} ended with {ends[name]}, but got {verdict}"


def known_leases(trace: Trace, case: Case, proxies: Mapping[str, CaseProxy]) -> Iterator[str]:
    """Requests name only leases that were given, with their context."""
    given = _given(proxies)
    for event in trace.of("pull", *_CONTROL):
        for lease in _named(event.request):
            if lease not in given:
                yield f"{event.kind} names lease {lease}, which was never given"


def home(trace: Trace, case: Case, proxies: Mapping[str, CaseProxy]) -> Iterator[str]:
    """Requests about a lease go to the proxy that holds it."""
    homes = {lease: at for proxy in proxies.values() for lease, at in proxy.homes.items() if at}
    for event in trace.of("pull", *_CONTROL):
        assert event.request is not None
        for lease in _named(event.request):
            if homes.get(lease, event.request.proxy) != event.request.proxy:
                yield f"{event.kind} for lease {lease} went to a proxy that does not hold it"


def two_connections(trace: Trace, case: Case, proxies: Mapping[str, CaseProxy]) -> Iterator[str]:
    """Pulls have a separate connection: a waiting one would delay other requests."""
    if case.client.mode != "consume":
        return
    pulling = {(e.request.proxy, e.request.connection) for e in trace.of("pull") if e.request}
    for event in trace.of(*_CONTROL):
        assert event.request is not None
        if (event.request.proxy, event.request.connection) in pulling:
            yield f"a {event.kind} came on the connection of pulls"


def nothing_kept(trace: Trace, case: Case, proxies: Mapping[str, CaseProxy]) -> Iterator[str]:
    """A client that ends normally has settled all its leases."""
    if case.client.mode != "consume" or _killed(case) or (case.exit and case.exit.code):
        return
    told = {lease for e in trace.of("pull", "settle") for lease, _ in _told(e.request)}
    refused = {lease for step in case.steps for lease in step.get("leases", ())}
    if left := [name for name in _given(proxies) - told if name[2] not in refused]:
        yield f"leases {sorted(left)} were never settled"


def no_storm(trace: Trace, case: Case, proxies: Mapping[str, CaseProxy]) -> Iterator[str]:
    """Requests are paced, whatever fails: 200 in a second are too many."""
    times = [event.at_s for event in trace.events if event.request is not None]
    for first, last in zip(times, times[200:], strict=False):
        if last - first < 1.0:
            yield "more than 200 requests came within a second"
            return


LAWS: tuple[Law, ...] = (
    *(lines, one_handler_a_key, concurrency, who_asks, pull_ids, pull_shape, one_verdict),
    *(verdicts_are_outcomes, known_leases, home, two_connections, nothing_kept, no_storm),
)


def broken_laws(
    trace: Trace, case: Case, proxies: Mapping[str, CaseProxy]
) -> Iterator[tuple[str, str]]:
    """Yield name and sentence of each violation."""
    for law in LAWS:
        name = law.__name__.replace("_", "-")
        for sentence in law(trace, case, proxies):
            yield name, sentence


def broken_lines(trace: Trace, case: Case) -> Iterator[tuple[str, str]]:
    """As ``broken_laws``, from the client's lines only."""
    for law in (lines, one_handler_a_key, concurrency):
        for sentence in law(trace, case, {}):
            yield law.__name__.replace("_", "-"), sentence


def _told(request: Any) -> Iterator[tuple[LeaseName, str]]:
    """Yield leases with their verdicts in a request."""
    for batch in request.argument.acks or ():
        place = (batch.context.topic, batch.context.qid)
        for lease in batch.acked or ():
            yield (*place, lease), "ok"
        for nack in batch.nacked or ():
            yield (*place, nack.leaseId), "reject" if nack.reject else "retry"
        for lease in batch.released or ():
            yield (*place, lease), "defer"


def _named(request: Any) -> Iterator[LeaseName]:
    """Yield all leases in a request."""
    if request.method == "extend":
        for each in request.argument.leases:
            yield (each.context.topic, each.context.qid, each.leaseId)
    else:
        yield from (lease for lease, _ in _told(request))


def _given(proxies: Mapping[str, CaseProxy]) -> set[LeaseName]:
    return {name for proxy in proxies.values() for name in proxy.homes}


def _place(line: dict[str, Any]) -> tuple[Any, Any]:
    return (line.get("queue"), line.get("lease"))


def _killed(case: Case) -> bool:
    return any(step.get("signal") == "kill" for step in case.steps)
