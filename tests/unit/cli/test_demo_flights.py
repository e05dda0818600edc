"""The demo's data: messages made of rows of the flights."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import orjson
import pytest

from proxy.cli.demo.flights import flight_events, in_order_of_time
from proxy.errors import OrderlaneError

ROW = {
    "year": "2013",
    "month": "1",
    "day": "1",
    "sched_dep_time": "515",
    "dep_time": "517",
    "dep_delay": "2",
    "arr_time": "830",
    "arr_delay": "11",
    "air_time": "227",
    "carrier": "UA",
    "flight": "1545",
    "tailnum": "N14228",
    "origin": "EWR",
    "dest": "IAH",
}


def test_a_flight_gives_a_departure_and_an_arrival_after_it() -> None:
    departure, arrival = in_order_of_time([ROW])

    assert (departure.kind, departure.at) == ("departure", datetime(2013, 1, 1, 5, 17))
    assert (arrival.kind, arrival.at) == ("arrival", datetime(2013, 1, 1, 9, 4))
    assert orjson.loads(arrival.body()) == {
        "event": "arrival",
        "at": "2013-01-01T09:04",
        "flight": "UA1545",
        "origin": "EWR",
        "dest": "IAH",
        "tailnum": "N14228",
        "delay_min": 11,
    }


def test_a_flight_that_never_arrived_gives_the_departure_alone() -> None:
    events = in_order_of_time([{**ROW, "arr_time": "", "arr_delay": "", "air_time": ""}])

    assert [event.kind for event in events] == ["departure"]


def test_a_cancelled_flight_gives_a_single_event() -> None:
    row = {**ROW, "dep_time": "", "dep_delay": "", "arr_time": "", "arr_delay": "", "air_time": ""}

    (event,) = in_order_of_time([row])

    assert (event.kind, event.at, event.delay_min) == (
        "cancelled",
        datetime(2013, 1, 1, 5, 15),
        None,
    )


def test_a_diverted_flight_lands_by_its_clock_times_also_past_midnight() -> None:
    row = {**ROW, "dep_time": "2350", "sched_dep_time": "2350", "dep_delay": "0"}
    _, arrival = in_order_of_time([{**row, "arr_time": "130", "air_time": ""}])

    assert arrival.at == datetime(2013, 1, 2, 1, 30)


def test_an_unknown_aircraft_is_left_out_of_the_body() -> None:
    departure, _ = in_order_of_time([{**ROW, "tailnum": ""}])

    assert departure.tailnum is None
    assert "tailnum" not in orjson.loads(departure.body())


def test_events_are_ordered_by_time() -> None:
    later = {**ROW, "dep_time": "600", "sched_dep_time": "600", "dep_delay": "0"}

    kinds = [(event.kind, event.at.hour) for event in in_order_of_time([later, ROW])]

    assert kinds == [("departure", 5), ("departure", 6), ("arrival", 9), ("arrival", 9)]


@pytest.mark.slow
def test_january_has_27004_flights() -> None:
    """26,468 arrived, 15 departed and never arrived, 521 were cancelled."""
    counts = Counter(event.kind for event in flight_events("january"))

    assert counts == {"departure": 26_483, "arrival": 26_468, "cancelled": 521}


def test_a_number_selects_the_first_flights() -> None:
    flights = {event.flight for event in flight_events("3")}

    assert flights == {"UA1545", "UA1714", "AA1141"}


@pytest.mark.parametrize("which", ["february", "0", "-1", "1.5", ""])
def test_an_invalid_selection_is_one_sentence(which: str) -> None:
    with pytest.raises(OrderlaneError, match="give january, all or a number"):
        flight_events(which)
