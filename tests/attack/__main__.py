"""``make attack``: attack real processes, and print attack, answer and figure of each attack.

Every row of SECURITY.md is carried out against a nameserver, a broker and proxies of the command
line, also damage to their files. ``--only NAME`` selects attacks by the beginning of their name
(``--list`` prints the names). ``--json FILE`` stores the outcomes. What a failed attack started is
kept in ``build/attack/NAME``. Exit code 1 if an answer was wrong.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import structlog

from testkit.processes import ROOT
from tests.attack.attacks import Attack, Outcome, all_attacks, carry_out

FOLDER = ROOT / "build" / "attack"


@dataclass(frozen=True, slots=True)
class Options:
    """The command's arguments."""

    only: list[str]
    names: bool
    json: Path | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 1 for a wrong answer, 2 for a wrong name."""
    options = _options(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)  # refused connections are expected
    chosen = _chosen(all_attacks(), options.only)
    if options.names:
        sys.stdout.writelines(f"{each.name}: {each.rows[0]}\n" for each in chosen)
        return 0
    if not chosen:
        sys.stderr.write(f"no attack begins with {' or '.join(options.only)}: see --list\n")
        return 2
    outcomes = []
    for each in chosen:
        outcome = _carry_out(each)
        outcomes.append(outcome)
        sys.stdout.write(_line(outcome))
        sys.stdout.flush()
    wrong = sum(not outcome.correct for outcome in outcomes)
    sys.stdout.write(f"{len(outcomes) - wrong} passed, {wrong} failed\n")
    if options.json is not None:
        options.json.write_bytes(orjson.dumps([_record(outcome) for outcome in outcomes]))
    return int(wrong > 0)


def _options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="make attack ARGS=", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="the beginning of a name")
    parser.add_argument("--list", action="store_true", dest="names", help="print the names")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    return Options(**vars(parser.parse_args(arguments)))


def _chosen(attacks: Sequence[Attack], only: Sequence[str]) -> list[Attack]:
    return [each for each in attacks if not only or each.name.startswith(tuple(only))]


def _carry_out(each: Attack) -> Outcome:
    folder = FOLDER / each.name
    shutil.rmtree(folder, ignore_errors=True)
    outcome = carry_out(each, folder)
    if outcome.correct:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _line(outcome: Outcome) -> str:
    word = "correct" if outcome.correct else "WRONG"
    attack = outcome.attack
    return (
        f"{word} {attack.name} ({outcome.seconds:.1f} s)\n"
        f"  attack: {'; '.join(attack.rows)}\n"
        f"  answer: {attack.answer}\n"
        f"  figure: {outcome.figure}\n"
    )


def _record(outcome: Outcome) -> dict[str, object]:
    return {
        "name": outcome.attack.name,
        "attacks": outcome.attack.rows,
        "answer": outcome.attack.answer,
        "figure": outcome.figure,
        "correct": outcome.correct,
        "seconds": round(outcome.seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
