"""``--broker``: the brokers of the proxy's integration tests; and the table of conformance.

A test with the fixture ``brokers`` runs on the embedded broker, or once for each of
``--broker 5.3.3 --broker 4.9.7``; the other integration tests do not run then.

A test names the feature that it proves by ``@pytest.mark.feature("…")`` and its version of Apache
RocketMQ by the parameter ``version``; ``make conformance-rocketmq`` prints the table of results.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
import structlog
from hypothesis import HealthCheck, settings

from testkit.brokers import EMBEDDED, Brokers, brokers_of
from testkit.java import require_java
from testkit.processes import ROOT
from testkit.rocketmq import VERSIONS
from testkit.simulation.pytest_loop import PytestLoop
from tests.support.core_tests import is_core_test
from tests.support.examples import EXPLORES, examples
from tests.support.variants import in_part

if TYPE_CHECKING:
    from tests.support.command_line import CommandLine

pytest_plugins = ["testkit.time_limit"]

# A slow machine is no failure.
settings.register_profile(
    "same",
    max_examples=examples(100),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile(
    "explore",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("explore" if EXPLORES else "same")

# Background runs ignore Ctrl-C, and all child processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_failed_tasks: list[str] = []


def _note_failed_task(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    if event["event"] == "task failed":
        _failed_tasks.append(f"{event['task']}: {event['exc_info']!r}")
    return event


# The default renders each traceback with all its variables: half a second for each failure that a
# test provokes.
structlog.configure(
    processors=[
        _note_failed_task,
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]
)

_TESTS = ROOT / "tests"
_INTEGRATION = _TESTS / "integration"
_SIMULATED = (_INTEGRATION, *(_TESTS / name for name in ("unit", "property", "world")))
_LONGEST = ("world", "property")
_MEMORY = Path("/dev/shm")
_LEAST_ROOM = 2 << 30
_basetemp = pytest.StashKey[Path]()
_outcomes: dict[tuple[str, str], list[str]] = {}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Use virtual time and an in-memory network, unless the test is marked as one about sockets."""
    real = config.getoption("--broker") or item.get_closest_marker("sockets")
    if real or not any(item.path.is_relative_to(of) for of in _SIMULATED):
        return {"sockets": asyncio.new_event_loop}
    return {"simulated": PytestLoop}


@pytest.fixture
def orderlane(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    """The command line, run in this process."""
    from tests.support.command_line import command_line  # only few tests need all that it imports

    with command_line(monkeypatch, capsys) as run:
        yield run


@pytest.fixture(autouse=True)
def _logs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Restore the configuration of logs, and fail if a task failed, unless one fails on purpose:
    what a caller expects must be a task's result, as everything it raises is logged as a bug.
    """
    before, root = structlog.get_config(), logging.getLogger()
    _failed_tasks.clear()
    yield
    structlog.configure(**before)
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler:  # those of pytest are of subclasses
            root.removeHandler(handler)
    if request.node.get_closest_marker("failing_tasks") is None:
        assert not _failed_tasks, "mark the test with failing_tasks if that is its purpose"


@pytest.fixture(autouse=True, scope="session")
def _own_environment(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start programs as a user does: their output is buffered, whatever this shell exports.

    The account's key for stored groups stays out of the developer's home.
    """
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    os.environ.pop("PYTHONUNBUFFERED", None)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary files in memory, since syncs to a busy disk take longer than most tests."""
    if config.option.basetemp or config.getoption("--broker") or not os.access(_MEMORY, os.W_OK):
        return
    asked = [Path(each.partition("::")[0]).resolve() for each in config.args]
    small = all(
        each in (ROOT, ROOT / "tests") or any(each.is_relative_to(of) for of in _SIMULATED)
        for each in asked
    )
    if small and shutil.disk_usage(_MEMORY).free > _LEAST_ROOM:
        for left in _MEMORY.glob("orderlane-tests-*"):
            if not Path("/proc", left.name.split("-")[2]).exists():
                shutil.rmtree(left, ignore_errors=True)
        prefix = f"orderlane-tests-{os.getpid()}-"
        config.stash[_basetemp] = Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY))
        config.option.basetemp = str(config.stash[_basetemp] / "of")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect garbage rarely, and not among modules and tests: a million objects that stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)
        gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    if (made := config.stash.get(_basetemp, None)) is not None:
        shutil.rmtree(made, ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        action="append",
        choices=(EMBEDDED, *VERSIONS),
        help="run the proxy's integration tests on this broker (default: embedded)",
    )
    parser.addoption(
        "--core",
        action="store_true",
        help="run the tests that measure the branch coverage of the ordering core only",
    )
    parser.addoption(
        "--part",
        action="store_true",
        help="as CI does: of the slow variants of a test the first, of many variants every third",
    )


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    # Tests of sockets and processes spend time waiting: use one worker more than there are
    # processors.
    return len(os.sched_getaffinity(0)) + 1


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "brokers" in metafunc.fixturenames:
        kinds = metafunc.config.getoption("--broker") or [EMBEDDED]
        metafunc.parametrize("version", kinds, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The longest tests first, so that the workers end at about the same time.
    items.sort(key=lambda item: not any(item.path.is_relative_to(_TESTS / of) for of in _LONGEST))
    if config.getoption("--broker"):
        without = [item for item in items if _INTEGRATION in item.path.parents]
        without = [item for item in without if "brokers" not in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in without]
    if config.getoption("--core"):
        others = [item for item in items if not _measures_core(item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _measures_core(item)]
    if config.getoption("--part"):
        taken = in_part([(item.nodeid, bool(item.get_closest_marker("slow"))) for item in items])
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in taken])
        items[:] = [item for item in items if item.nodeid in taken]


def _measures_core(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and is_core_test(item.path, item.module.__name__)


@pytest.fixture(scope="session")
def running_brokers(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    if version != EMBEDDED:
        require_java()
    with brokers_of(version, tmp_path_factory.mktemp(f"rocketmq-{version}")) as running:
        yield running


@pytest.fixture
def brokers(running_brokers: Brokers) -> Brokers:
    """The kind of broker that this test runs on; a broker that a failed test left stopped is
    started.
    """
    if (official := running_brokers.official) is not None and not official.broker_runs:
        official.start_broker()
    return running_brokers


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Report a connection or file that a slow test leaves open in that test, not in a later one."""
    if item.get_closest_marker("slow"):
        gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    report: pytest.TestReport = yield
    # Logs of a test may not be valid text, and must reach the reporting process.
    report.sections[:] = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    if feature := item.get_closest_marker("feature"):
        call_of = getattr(item, "callspec", None)
        version = "-" if call_of is None else call_of.params.get("version", "-")
        if version != EMBEDDED and (report.outcome != "passed" or report.when == "call"):
            _outcomes.setdefault((feature.args[0], version), []).append(report.outcome)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the command that repeats each failure alone."""
    failed = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    if failed:
        terminalreporter.section("run again")
    for nodeid in dict.fromkeys(report.nodeid for report in failed):
        terminalreporter.write_line(f".venv/bin/pytest -n 0 {shlex.quote(nodeid)}")


def _result(outcomes: list[str]) -> str:
    return "pass" if set(outcomes) == {"passed"} else "FAIL"


def pytest_sessionfinish() -> None:
    """Write the results for the table of ``tests/conformance/rocketmq/__main__.py``."""
    for of in {version for _, version in _outcomes}:
        rows = [
            {"feature": feature, "version": version, "result": _result(found)}
            for (feature, version), found in _outcomes.items()
            if version == of
        ]
        path = ROOT / "build/rocketmq" / of / "conformance.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(rows, option=orjson.OPT_INDENT_2))
