"""The list of accepted findings, ``exceptions.toml``.

Per rule it has entries with a reason and the number of findings of each file::

    [[foreign-writes]]
    reason = "ssl has no other way to set a context up"
    [foreign-writes.files]
    "broker_core/tls.py" = 1

A file is named by the shortest unique end of its path, so it may move to another folder.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tools.lint.source import ROOT, Finding

FILE = ROOT / "tools" / "lint" / "exceptions.toml"


class ExceptionsError(Exception):
    """The list is invalid; the text gives the place and the correction."""


@dataclass(frozen=True, slots=True)
class Exceptions:
    """Rule → end of a path → number of findings."""

    counts: Mapping[str, Mapping[str, int]]

    def problems(
        self, rule: str, findings: Iterable[Finding], paths: Collection[str]
    ) -> Iterator[str]:
        """Return the errors among the *findings* of *rule*, and in the numbers accepted for it.

        *paths* are all files that the rule checked.
        """
        by_path: dict[str, list[Finding]] = {}
        for each in findings:
            by_path.setdefault(each.path, []).append(each)
        accepted = Counter[str]()
        for end, count in self.counts.get(rule, {}).items():
            named = [path for path in paths if path == end or path.endswith(f"/{end}")]
            if len(named) == 1:
                accepted[named[0]] += count
            else:
                yield f"{rule}: exceptions.toml: {end!r} names {len(named)} files, expected one"
        for path in sorted(by_path.keys() | accepted.keys()):
            there, known = len(by_path.get(path, ())), accepted[path]
            if there > known:
                yield from (f"{rule}: {each}" for each in by_path[path])
                if known:
                    yield f"{rule}: {path}: {there} findings, {known} are accepted"
            elif there < known:
                yield (
                    f"{rule}: {path}: {there} findings, {known} are accepted: "
                    "run python -m tools.lint --shrink"
                )

    def shrunk(self, rule: str, findings: Iterable[Finding]) -> Mapping[str, int]:
        """Return end of a path → number, for those larger than needed."""
        there = Counter(each.path for each in findings)
        now = {
            end: sum(
                count for path, count in there.items() if path == end or path.endswith(f"/{end}")
            )
            for end in self.counts.get(rule, {})
        }
        return {end: n for end, n in now.items() if n < self.counts[rule][end]}


def read(text: str, rules: Collection[str]) -> Exceptions:
    """Return the list in *text*. Raises ExceptionsError."""
    counts: dict[str, dict[str, int]] = {}
    for rule, entries in tomllib.loads(text).items():
        if rule not in rules:
            raise ExceptionsError(f"there is no rule {rule!r}: expected one of {', '.join(rules)}")
        for entry in entries:
            if set(entry) != {"reason", "files"} or not entry["reason"].strip():
                raise ExceptionsError(f"{rule}: an entry has a reason and files")
            for end, count in entry["files"].items():
                if end in counts.setdefault(rule, {}):
                    raise ExceptionsError(f"{rule}: {end!r} is named twice")
                if not isinstance(count, int) or count < 1:
                    raise ExceptionsError(f"{rule}: {end!r}: expected a number above 0")
                counts[rule][end] = count
    return Exceptions(counts)


def with_counts(text: str, rule: str, counts: Mapping[str, int]) -> str:
    """Return *text* with these numbers for files of *rule*, without lines and entries that reach 0.

    Each file is on a line of its own.
    """
    entries = re.split(r"(?m)^(?=\[\[)", text)
    return "".join(
        _entry_with(entry, counts) if entry.startswith(f"[[{rule}]]") else entry
        for entry in entries
    )


def _entry_with(entry: str, counts: Mapping[str, int]) -> str:
    for end, count in counts.items():
        line = rf'(?m)^"{re.escape(end)}" = \d+\n'
        entry = re.sub(line, f'"{end}" = {count}\n' if count else "", entry)
    return entry if re.search(r'(?m)^".+" = \d+$', entry) else ""
