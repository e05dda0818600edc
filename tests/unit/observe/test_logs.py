from __future__ import annotations

import asyncio
import logging
from typing import Any

import orjson
import pytest
import structlog
from structlog.testing import capture_logs

from broker_core.names import QueueName, Topic
from proxy.observe.logs import NoisyLog, configure_logs, queue_log


def test_a_line_of_json_carries_group_topic_and_qid(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(json_lines=True)
    log = queue_log("upstream", group="billing", queue=QueueName(Topic("orders"), "broker-a", 3))
    log.info("queue acquired", epoch=7)
    captured = capsys.readouterr()
    line = orjson.loads(captured.err)
    assert captured.out == ""
    assert (line["group"], line["topic"], line["qid"]) == ("billing", "orders", "broker-a_3")
    assert (line["event"], line["level"], line["epoch"]) == ("queue acquired", "info", 7)


def test_values_without_a_json_form_are_logged_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(json_lines=True)
    structlog.get_logger("x").info("odd", value=object, keys={1: "a"})
    assert orjson.loads(capsys.readouterr().err)["value"] == "<class 'object'>"


def test_the_level_filters(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(level="warning", json_lines=True)
    structlog.get_logger("x").info("not wanted")
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_words(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(json_lines=False)
    structlog.get_logger("x").info("ready", thrift="127.0.0.1:9713")
    assert "ready" in capsys.readouterr().err


def test_libraries_that_use_logging_come_out_the_same_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs(json_lines=True)
    logging.getLogger("some.library").warning("looked at %s", "this")
    line = orjson.loads(capsys.readouterr().err)
    assert (line["event"], line["level"]) == ("looked at this", "warning")


class _Lines:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))


def test_a_noisy_key_is_rate_limited_and_counts_suppressed_lines() -> None:
    now, log = 0, _Lines()
    noisy = NoisyLog(log, every_s=1, clock_ns=lambda: now)
    for _ in range(5):
        noisy.warning("10.0.0.1", "bad frame")
    noisy.warning("10.0.0.2", "bad frame")
    now = 999_999_999
    noisy.warning("10.0.0.1", "bad frame")
    now = 1_000_000_000
    noisy.warning("10.0.0.1", "bad frame", bytes=3)
    assert log.lines == [
        ("bad frame", {}),
        ("bad frame", {}),
        ("bad frame", {"bytes": 3, "left_out": 5}),
    ]


def test_noisy_keys_are_bounded() -> None:
    log = _Lines()
    noisy = NoisyLog(log, max_keys=3, clock_ns=lambda: 0)
    for number in range(100):
        noisy.warning(str(number), "bad frame")
    assert len(log.lines) == 100
    for number in (99, 98, 97):  # still known
        noisy.warning(str(number), "bad frame")
    assert len(log.lines) == 100
    noisy.warning("96", "bad frame")
    assert len(log.lines) == 101


#: What a key, a reason or a path of a stranger may contain.
_HOSTILE = "\x1b[2J\x9b31m\u202egpj\r\nforged line\x00"


@pytest.mark.parametrize("json_lines", [True, False])
def test_no_line_contains_what_a_terminal_would_obey(
    json_lines: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(json_lines=json_lines)
    log = structlog.get_logger("x").bind(bound=_HOSTILE)
    log.info(_HOSTILE, value=_HOSTILE, nested={"a": [_HOSTILE]}, raw=_HOSTILE.encode())
    log.info("a name", **{_HOSTILE: 1})
    logging.getLogger("some.library").warning("%s", _HOSTILE)
    try:
        raise ValueError(_HOSTILE)
    except ValueError:
        log.exception("failed", value=ValueError(_HOSTILE))
    text = capsys.readouterr().err
    for sign in "\x9b\u202e\r\x00":
        assert sign not in text
    assert "\x1b[2J" not in text
    assert not any(line.startswith("forged") for line in text.splitlines())


def test_a_line_of_json_keeps_hostile_content(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(json_lines=True)
    structlog.get_logger("x").info("seen", value=_HOSTILE, half="\ud800")
    line = orjson.loads(capsys.readouterr().err)
    assert line["event"] == "seen"
    assert line["value"].startswith(("\x1b[2J", "\\x1b[2J"))


def test_work_on_one_item_that_fails_is_logged_and_ends_nothing_else() -> None:
    noisy = NoisyLog(structlog.get_logger("x"))
    done: list[int] = []
    with capture_logs() as logs:
        for each in (1, 0, 2):
            with noisy.confined("bug", "an item failed", item=each) as confined:
                done.append(6 // each)
            assert confined.failed is (each == 0)
        with pytest.raises(asyncio.CancelledError), noisy.confined("bug", "an item failed"):
            raise asyncio.CancelledError
    assert done == [6, 3]
    (told,) = logs
    assert (told["event"], told["item"]) == ("an item failed", 0)
    assert "by zero" in told["reason"]
