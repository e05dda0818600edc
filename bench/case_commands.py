"""Commands for the cases in ``bench/cases``, all with the same options."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from bench.report import ROOT
from proxy.cli.output import OutputFormat, print_rows, say
from proxy.errors import OrderlaneError

if TYPE_CHECKING:
    from bench.frame.case import Case, Scale
    from bench.runner import Plan

_Vs = Annotated[
    list[str] | None, typer.Option(help="also measure this peer, such as rocketmq-orderly")
]
_Rounds = Annotated[
    int | None,
    typer.Option(min=1, help="interleaved runs of each arm (default: given by the shape)"),
]
_Full = Annotated[bool, typer.Option("--full", help="run the full shape, as in make bench-full")]
_Points = Annotated[
    list[str] | None, typer.Option("--point", help="run only this point (default: all)")
]
_Arms = Annotated[list[str] | None, typer.Option("--arm", help="run only this arm (default: all)")]
_Sizes = Annotated[
    list[str] | None, typer.Option("--size", help="NAME=NUMBER instead of the shape's")
]
_Seed = Annotated[int, typer.Option(help="seed of the order of arms, and of keys")]
_Resume = Annotated[
    bool, typer.Option("--resume", help="keep finished runs of an earlier call with this code")
]


def result_file(path: Path | None) -> Path | None:
    """Return *path*; raise OrderlaneError for a folder, before hours of measuring."""
    if path is not None and path.is_dir():
        raise OrderlaneError(f"--out {path} is a folder: give the name of a file in it")
    return path


def result_folder(path: Path | None) -> Path | None:
    """Return *path*; raise OrderlaneError if it exists and is not a folder."""
    if path is not None and path.exists() and not path.is_dir():
        raise OrderlaneError(f"--out {path} is a file: give a folder")
    return path


_Out = Annotated[
    Path | None,
    typer.Option(
        callback=result_file,
        help="result file (default: in build/bench; in bench/results with --full)",
    ),
]
_Broker = Annotated[
    str, typer.Option(help="embedded, or a version of Apache RocketMQ: 5.3.3 or 4.9.7")
]


class CaseGroup(TyperGroup):
    """A command group: its own commands, and one for each case built on the frame.

    The base classes of commands and contexts are typer's internals, without public names.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names, the cases on the frame last."""
        return [*super().list_commands(ctx), *_cases()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of that name."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        case = _cases().get(cmd_name)
        return None if case is None else _command_of(case)


def check_broker(broker: str) -> None:
    """Raise OrderlaneError if benchmarks do not support *broker*."""
    from bench.site import KINDS

    if broker not in KINDS:
        raise OrderlaneError(f"--broker {broker!r}: expected one of {', '.join(KINDS)}")


def command() -> str:
    """Return the command line that repeats this call, without the output path."""
    words = [word for word in sys.argv[1:] if word != "--resume"]
    if "--out" in words:
        at = words.index("--out")
        words = words[:at] + words[at + 2 :]
    return shlex.join(["orderlane", *words])


@contextmanager
def failing_in_words(case: str) -> Iterator[None]:
    """Turn an unmet condition into a one-sentence error."""
    try:
        yield
    except AssertionError as error:
        # Logs of the processes may follow; their last lines are the most useful.
        lines = str(error).splitlines() or ["something did not come true"]
        said = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
        raise OrderlaneError(f"bench {case}: {said}") from None


def measure_all(folder: Path, *, full: bool, resume: bool, rounds: int | None) -> None:
    """Run all cases and write the results to *folder*.

    With *full*, also run the cases with options of their own if their tools are installed. Raises
    OrderlaneError that lists the unfinished cases.
    """
    from bench.runner import Plan

    failed = []
    for case in _cases().values():
        began = time.monotonic()
        say(f"== {case.name}: {case.question}")
        scale: Scale = "full" if full else "short"
        plan = Plan(scale, rounds=rounds, vs=tuple(case.shape(scale).peers), resume=resume)
        try:
            out = folder / f"{case.name}-embedded.json"
            failed += [
                f"{case.name}, {each}" for each in _measure(case, plan, out, _spelled(case, plan))
            ]
        except (AssertionError, OrderlaneError) as error:
            failed.append(f"{case.name}: {error}")
        say(f"== {case.name} took {time.monotonic() - began:.0f} s")
    if full:
        failed += _measure_others(folder, resume=resume)
    if failed:
        raise OrderlaneError("these did not finish:\n" + "\n".join(failed))


def _measure_others(folder: Path, *, resume: bool) -> list[str]:
    """Run the cases with options of their own; return those that failed."""
    from bench import other_cases as others

    failed = []
    for name, run in others.OTHERS.items():
        out = folder / f"{name}.json"
        if resume and others.is_fresh(out):
            continue
        say(f"== {name}")
        try:
            run(out, say)
        except (AssertionError, OrderlaneError, ImportError) as error:
            failed.append(f"{name}: {error}")
    return failed


def _cases() -> Mapping[str, Case]:
    from bench.cases.registry import CASES

    return CASES


def _command_of(case: Case) -> Any:
    def run(
        vs: _Vs = None,
        rounds: _Rounds = None,
        full: _Full = False,
        point: _Points = None,
        arm: _Arms = None,
        size: _Sizes = None,
        broker: _Broker = "embedded",
        seed: _Seed = 7,
        resume: _Resume = False,
        out: _Out = None,
    ) -> None:
        check_broker(broker)
        from bench.runner import Plan

        plan = Plan(
            "full" if full else "short",
            broker,
            rounds,
            points=tuple(point or ()),
            arms=tuple(arm or ()),
            vs=tuple(vs or ()),
            seed=seed,
            resume=resume,
            sizes=dict(map(_size, size or ())),
        )
        # Documents are generated from the results of full runs.
        folder = ROOT / ("bench/results" if full else "build/bench")
        path = out or folder / f"{case.name}-{broker}.json"
        _measure(case, plan, path, command())

    return _single(case, run)


def _size(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        raise OrderlaneError(f"--size {text!r}: expected NAME=NUMBER") from None


def _single(case: Case, run: Callable[..., None]) -> Any:
    app = typer.Typer(add_completion=False)
    points = ", ".join(map(str, case.points))
    text = f"{case.question}\n\n{case.point}: {points}; arms: {', '.join(case.arms)}."
    app.command(case.name, help=text, short_help=case.question)(run)
    return typer.main.get_command(app)


def _measure(case: Case, plan: Plan, out: Path, said: str) -> list[str]:
    """Run one case; return the reasons for unfinished runs."""
    from bench.frame.summary import failures, rows
    from bench.runner import measure

    signal.signal(signal.SIGTERM, _end)
    result: dict[str, Any] = measure(case, plan, out, command=said, say=say)
    found = rows(case, result["runs"])
    columns = list(found[0]) if found else []
    print_rows(found, columns=columns, output=OutputFormat.TABLE)
    failed = failures(result["runs"], case.point)
    for sentence in failed:
        say(sentence)
    return failed


def _end(_signal: int, _frame: object) -> None:
    """Exit on a signal, so that processes and folders of the current run are cleaned up."""
    raise SystemExit(143)


def _spelled(case: Case, plan: Plan) -> str:
    """Return the command that runs one case alone."""
    words = ["orderlane", "bench", case.name, *(f"--vs={peer}" for peer in plan.vs)]
    words += [f"--rounds={plan.rounds}"] if plan.rounds else []
    return shlex.join([*words, *(["--full"] if plan.scale == "full" else [])])
