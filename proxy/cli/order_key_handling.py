"""Handling times, handlers and round trip of a group, for ``orderlane order-key simulate``."""

from __future__ import annotations

import statistics
import time

from proxy.cli.connect import ask_proxy, one_of
from proxy.cli.order_key_sample import Known
from proxy.cli.output import say
from proxy.cli.owner_requests import look, path_of, say_unanswered
from proxy.errors import OrderlaneError
from proxy.tuning.handling import Handling

#: Requests of a measurement; the first ones also open files and start caches.
_REQUESTS, _UNCOUNTED = 12, 2


def handling_of(http: str, of: Known) -> Handling:
    """Return what the group's clients reported to the proxy at *http* and to the other owners of
    its queues. Owners that do not answer are named and left out.
    """
    http = one_of(http)
    path = path_of("groups", of.group, "handling")
    answers = [look(http, path)]
    owners = look(http, path_of("owners"), group=of.group)
    say_unanswered(owners)
    others = {
        row["http"]
        for row in owners["queues"]
        if row["state"] == "owned" and row["owner"] != owners["proxy"] and row["http"] is not None
    }
    for address in sorted(others):
        try:
            answers.append(look(address, path))
        except OrderlaneError as error:
            say(f"without the handling times of its clients: {error}")
    return Handling.merged(answers)


def measured_round_trip_ns(http: str) -> int:
    """Return the median duration of a request from here to the proxy at *http*, with its
    connection. Raises OrderlaneError.
    """
    took_ns = []
    for _ in range(_REQUESTS):
        began_ns = time.monotonic_ns()
        ask_proxy(http, "/healthz")
        took_ns.append(time.monotonic_ns() - began_ns)
    return round(statistics.median(took_ns[_UNCOUNTED:]))
