"""Figures that a group keeps of its clients' reports."""

from __future__ import annotations

from proxy.core.group.group_figures import GroupFigures

S = 1_000_000_000


def report(
    figures: GroupFigures,
    client: str,
    connection: int,
    *,
    at_s: int,
    times: dict[int, int] | None = None,
    handlers: int = 8,
) -> None:
    figures.note(
        client,
        connection,
        handlers=handlers,
        prefetch=handlers,
        handling=times or {},
        round_trips={3: 1},
        now_ns=at_s * S,
    )


def test_reports_of_all_clients_are_summed() -> None:
    figures = GroupFigures({1, 2})
    report(figures, "a", 1, at_s=1, times={40: 5})
    report(figures, "b", 2, at_s=1, times={40: 1, 90: 2}, handlers=4)
    report(figures, "a", 1, at_s=2, times={90: 1})
    seen = figures.observed()

    assert (seen.clients, seen.handlers, seen.prefetch) == (2, 12, 12)
    assert (seen.handling, seen.round_trips, seen.at_ns) == ({40: 6, 90: 3}, {3: 3}, 2 * S)


def test_clients_that_left_count_until_another_one_comes() -> None:
    """Then only the new one counts: its handlers may be others."""
    connections = {1}
    figures = GroupFigures(connections)
    report(figures, "old", 1, at_s=1, times={40: 5})
    connections.clear()
    assert (figures.observed().handlers, figures.observed().handling) == (8, {40: 5})

    connections.add(2)
    report(figures, "new", 2, at_s=2, times={90: 1}, handlers=3)
    assert (figures.observed().handlers, figures.observed().handling) == (3, {90: 1})
    connections.clear()
    assert figures.observed().clients == 1, "the last one"


def test_a_client_that_joins_others_adds_to_them_and_one_that_left_has_no_handlers() -> None:
    connections = {1, 2}
    figures = GroupFigures(connections)
    report(figures, "stays", 1, at_s=1, times={40: 5})
    report(figures, "goes", 2, at_s=1, times={40: 5})
    connections.remove(2)
    report(figures, "comes", 3, at_s=2, times={40: 5})
    connections.add(3)

    assert (figures.observed().clients, figures.observed().handling) == (2, {40: 15})


def test_a_client_that_reconnects_is_the_same() -> None:
    connections = {1}
    figures = GroupFigures(connections)
    report(figures, "a", 1, at_s=1, times={40: 5})
    connections.clear()
    report(figures, "a", 2, at_s=2, times={40: 1})
    assert (figures.observed().clients, figures.observed().handling) == (1, {40: 6})


def test_counts_are_kept_for_five_to_ten_minutes() -> None:
    figures = GroupFigures({1})
    report(figures, "a", 1, at_s=0, times={40: 1})
    report(figures, "a", 1, at_s=301, times={50: 1})
    assert figures.observed().handling == {40: 1, 50: 1}
    report(figures, "a", 1, at_s=602, times={60: 1})
    assert figures.observed().handling == {50: 1, 60: 1}


def test_impossible_values_are_left_out() -> None:
    figures = GroupFigures({1})
    times = {-1: 5, 10**6: 5, 40: -5, 41: 10**9, 42: 1}
    report(figures, "a", 1, at_s=1, times=times, handlers=-4)
    assert (figures.observed().handlers, figures.observed().handling) == (0, {42: 1})


def test_without_a_report_there_are_no_figures() -> None:
    seen = GroupFigures({1}).observed()
    assert (seen.clients, seen.handling, seen.at_ns) == (0, {}, None)
