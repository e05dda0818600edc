"""The report on candidate order keys, and its recommendation."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from proxy.tuning.key_profile import KeyProfile, Windows
from proxy.tuning.report import TuningReport, report_of
from proxy.tuning.report_text import markdown
from tests.support.command_line import command_line


def report(bodies: Iterable[tuple[int, Any]], *candidates: str, workers: int = 64) -> TuningReport:
    """Return the report on messages given by queue and body, stored one per second."""
    profile = KeyProfile(candidates, windows=Windows(time_ms=10_000, offsets=100))
    for place, (queue, body) in enumerate(bodies):
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        profile.add(
            SimpleNamespace(key=None, body=raw),
            queue=f"broker-a_{queue}",
            offset=place,
            stored_ms=place * 1000,
        )
    return report_of(profile.tallies(), source="orders", windows=profile.windows, workers=workers)


def test_the_finest_key_that_keeps_order_is_advised() -> None:
    bodies = [(n % 2, {"aircraft": f"N{n % 20}", "carrier": "UA"}) for n in range(100)]
    made = report(bodies, "$.carrier", "$.aircraft")

    assert made.advice.take == "$.aircraft"
    assert "80 % behind another message of their key" in made.advice.why
    assert "It has 20 keys, the hottest with 5 %" in made.advice.why
    assert "up to 20.0 of 64 handlers" in made.advice.why
    carrier, aircraft = made.advice.judgements
    assert not carrier.keeps_order
    assert "1 of 1 key is in several queues (100 % of" in carrier.cautions[0]
    assert "at most 1.0 of 64 handlers" in carrier.cautions[1]
    assert aircraft.keeps_order
    assert aircraft.cautions == [
        "one key has 5 % of all messages, so at most 20.0 of 64 handlers can be busy on average"
    ]


def test_a_key_that_many_messages_lack_is_not_advised() -> None:
    bodies = [(0, {"id": n} if n % 10 else {"id": None}) for n in range(50)]
    made = report([*bodies, (0, b"no json")], "$.id", "QID")

    assert made.advice.take == "QID"
    assert not made.advice.judgements[0].keeps_order
    assert made.advice.judgements[0].cautions[0] == (
        "6 messages (11.8 %) lack the key, 1 of them because their body is not JSON;"
        " the setting missing_key decides how they are delivered"
    )
    assert made.advice.judgements[0].cautions[1] == (
        "the messages of one queue without the key are 11.8 % of all messages, so at most 8.5 of"
        " 64 handlers can be busy on average"
    )
    assert made.candidates[0].kinds == {"number": 45, "null": 5, "unreadable": 1}


def test_values_of_several_types_are_named() -> None:
    made = report([(0, {"id": 1}), (0, {"id": "1"}), (0, {"id": 2})], "$.id", workers=1)

    figures = made.candidates[0]
    assert (figures.keys, figures.mistyped, figures.mixed_keys) == (2, 1, 1)
    assert made.advice.judgements[0].cautions == [
        "1 value has a less frequent type; 1 key occurs with several types: as keys, 1 and"
        ' "1" are the same'
    ]


@pytest.mark.parametrize(
    ("bodies", "sentence"),
    [
        ([(0, {"a": 1})], "No message has any of these keys"),
        ([(0, {"id": 1}), (1, {"id": 1})], "None of the candidates keeps order"),
        ([], "No message has any of these keys"),
    ],
)
def test_nothing_is_advised_where_nothing_would_keep_order(
    bodies: list[tuple[int, Any]], sentence: str
) -> None:
    made = report(bodies, "$.id")

    assert made.advice.take is None
    assert made.advice.why.startswith(sentence)
    assert "**None of these.**" in markdown(made)


def test_a_blocked_key_holds_back_its_later_messages() -> None:
    made = report([(0, {"id": "hot"})] * 25 + [(0, {"id": n}) for n in range(5)], "$.id")

    assert made.candidates[0].in_time.longest == 10
    assert "A key blocked for 10 s holds back 6.7 messages on average, 9 at worst." in (
        markdown(made)
    )


def test_the_report_shows_all_and_any_key_stays_in_its_cell() -> None:
    text = markdown(report([(0, {"id": "a|b\nc"}), (0, {"id": "`"})], "$.id", "$.n[0:2]", "QID"))

    assert "# Order keys of orders\n\n2 messages.\n" in text
    assert "**Take `$.id`.** Of the candidates that keep order" in text
    assert "| `a\\|b\\nc` | 1 | 50 % | 1 | 1 |" in text
    for candidate in ("$.id", "$.n[0:2]", "QID"):
        assert f"\n## `{candidate}`\n" in text
    rows = [line for line in text.splitlines() if line.startswith("| `$.")]
    assert rows[0] == "| `$.id` | 2 | 0 % | 50 % | 100 % | 0.000 | 1.000 | 2.0 | 0 % |"


def test_the_report_is_json() -> None:
    made = report([(0, {"id": "a"})], "$.id").as_dict()
    again = orjson.loads(orjson.dumps(made))

    assert again["advice"]["take"] == "$.id"
    assert again["windows"] == {"time_ms": 10_000, "offsets": 100}
    assert again["candidates"][0]["hottest"] == [
        {"key": "a", "messages": 1, "share": 1.0, "queues": 1, "longest": 1}
    ]


@pytest.mark.parametrize(
    ("candidates", "sentence"),
    [
        ((), "no candidate order key"),
        (("id",), "order key 'id' is neither QID nor KEY nor a JSON path"),
        (("KEY", "KEY"), "candidate 'KEY' is named twice"),
    ],
)
def test_candidates_that_are_no_rules_are_refused(
    candidates: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        KeyProfile(candidates)


def test_windows_and_profiles_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="a window of offsets is 0 messages"):
        Windows(offsets=0)
    with pytest.raises(ValueError, match="different candidates or windows"):
        KeyProfile(["KEY"]).merge(KeyProfile(["QID"]))


def test_a_window_of_nothing_is_refused_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--topic", "orders", "--candidate", "KEY", "--out", "nowhere", "--window", "0")
    with command_line(monkeypatch, capsys) as orderlane:
        said = orderlane.problem("spark", "key-profile", *asked)
    assert "spark key-profile: a window of time is 0 ms: at least 1 is needed" in said
