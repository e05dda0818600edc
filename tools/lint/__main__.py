"""``python -m tools.lint``: run every rule on every file; exit code 1 if one is broken.

``--shrink`` lowers the numbers in ``exceptions.toml`` to the actual ones, and never raises one.
``--all`` prints every finding, the accepted ones included. Arguments select rules by name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from tools.lint import (
    cycles,
    dead_code,
    exceptions,
    foreign_writes,
    inheritance,
    kept_errors,
    private_access,
    threads,
    wording,
)
from tools.lint.source import Finding, Source, sources

Rule = Callable[[Sequence[Source]], list[Finding]]


def _each(check: Callable[[Source], list[Finding]]) -> Rule:
    return lambda files: [finding for file in files for finding in check(file)]


RULES: Mapping[str, Rule] = {
    "inheritance": lambda files: inheritance.check([each for each in files if each.is_product]),
    "foreign-writes": foreign_writes.check,
    "private-access": _each(private_access.check),
    "kept-errors": lambda files: _each(kept_errors.check)(
        [each for each in files if each.is_product]
    ),
    "threads": _each(threads.check),
    "cycles": lambda files: cycles.check(cycles.imports()),
    "dead-code": lambda files: dead_code.check(),
    "wording": lambda files: wording.check(),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rules that *arguments* name, or all; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.lint", description=__doc__)
    parser.add_argument("rules", nargs="*", choices=[*RULES, []], metavar="RULE")
    parser.add_argument("--shrink", action="store_true", help="lower numbers of exceptions")
    parser.add_argument("--all", action="store_true", help="print accepted findings too")
    options = parser.parse_args(arguments)
    files = sources()
    found = {name: RULES[name](files) for name in options.rules or RULES}
    if options.shrink:
        _shrink(found)
    accepted = exceptions.read(exceptions.FILE.read_text(), RULES)
    paths = {each.path for each in files}
    paths |= {each.path for each in chain.from_iterable(found.values())}
    problems = [
        problem
        for name, findings in found.items()
        for problem in accepted.problems(name, findings, paths)
    ]
    if options.all:
        problems = [f"{name}: {each}" for name, findings in found.items() for each in findings]
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    return 1 if problems else 0


def _shrink(found: Mapping[str, Iterable[Finding]]) -> None:
    text = exceptions.FILE.read_text()
    accepted = exceptions.read(text, RULES)
    for name, findings in found.items():
        text = exceptions.with_counts(text, name, accepted.shrunk(name, findings))
    exceptions.FILE.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
