"""The suite against Apache RocketMQ: its own brokers under our proxy, its own client on our broker.

``make conformance-rocketmq`` runs it. A test names what it shows by ``@pytest.mark.feature("…")``
and takes its version by the parameter ``version``; the table at the end says what holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.support.java import require_java
from tests.support.processes import ROOT

_RESULTS = ROOT / "build/conformance-rocketmq.json"
_outcomes: dict[tuple[str, str], list[str]] = {}


@pytest.fixture(scope="session", autouse=True)
def _java() -> None:
    require_java()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if feature := item.get_closest_marker("feature"):
        call_of = getattr(item, "callspec", None)
        version = "-" if call_of is None else call_of.params.get("version", "-")
        failed_at_all = report.outcome != "passed"
        if failed_at_all or report.when == "call":
            _outcomes.setdefault((feature.args[0], version), []).append(report.outcome)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _outcomes:
        return
    rows = [
        (feature, version, "pass" if set(found) == {"passed"} else "/".join(sorted(set(found))))
        for (feature, version), found in sorted(_outcomes.items())
    ]
    wide = max(len(feature) for feature, _, _ in rows)
    terminalreporter.section("conformance with Apache RocketMQ")
    for feature, version, result in rows:
        terminalreporter.line(f"{feature:<{wide}}  {version:<24}  {result}")
    _RESULTS.parent.mkdir(exist_ok=True)
    _RESULTS.write_bytes(
        orjson.dumps(
            [{"feature": f, "version": v, "result": r} for f, v, r in rows],
            option=orjson.OPT_INDENT_2,
        )
    )


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rocketmq")
