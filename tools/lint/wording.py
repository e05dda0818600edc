"""Texts keep a few sharp rules of the style guide, ``docs/contributing/style.md``.

The rules apply to documentation without its code, and to comments and strings of source files:
docstrings, errors, help and labels are strings. Strings without a blank are names. The rules are
phrases that almost always have a plainer form, and first words of docstrings that hide the noun or
the verb.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.lint.source import GENERATED, ROOT, Finding

#: Separators of two words: blanks, line breaks and the marks of comments.
_GAP = r"[\s#/*]+"


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase to avoid, and the advice that goes with it."""

    words: str
    advice: str

    def pattern(self) -> re.Pattern[str]:
        """Match the phrase in any case, across line breaks, but not options and *parameters*. ``|``
        separates forms of a word.
        """
        words = (f"(?:{word})" for word in self.words.split())
        return re.compile(rf"(?<![-*])\b{_GAP.join(words)}\b", re.IGNORECASE)


PHRASES = (
    Phrase("nobody", "name the actor: no client, no proxy"),
    Phrase("whoever|whomever", "name the actor: the caller, the client"),
    Phrase("befall|befalls|befallen|befell", "write 'happen to', or name the event"),
    Phrase("that is|are|was|were none", "write 'invalid', or name the condition"),
    Phrase("anew", "write 'again'"),
    Phrase("is|are|was|were|be|been told", "write 'receives', 'is notified', or name the message"),
    Phrase("tell|tells|told|telling of", "write 'reports'"),
    Phrase("bear|bears|bore|borne", "write 'tolerate' or 'carry'"),
    Phrase("so many", "name the number or the limit"),
    Phrase("mend|mends|mended|mending", "write 'fix' or 'repair'"),
    Phrase("as it were", "leave it out"),
    Phrase("out of of", "leave one 'of' out"),
)

_PATTERNS = tuple((phrase, phrase.pattern()) for phrase in PHRASES)
_OPENING = re.compile(r"(What|Who|Whose|As elsewhere)\b")
#: Files without a match have no findings, and need not be parsed.
_ANY = re.compile(
    "|".join([*(pattern.pattern for _, pattern in _PATTERNS), rf'"""\s*{_OPENING.pattern}']),
    re.IGNORECASE,
)
_CODE = re.compile(r"`[^`\n]+`")
_FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.MULTILINE | re.DOTALL)

#: Suffixes of the files to check. All of a file is text unless it is Python or Markdown.
SUFFIXES = (
    *(".py", ".md", ".thrift", ".html", ".js", ".mjs", ".ts", ".go", ".java"),
    *(".cpp", ".hpp", ".h", ".cc", ".svg", ".yaml", ".toml"),
)
#: The guide and this rule name the phrases, and licences are not ours to edit.
LEFT_OUT = (
    "docs/contributing/style.md",
    "tools/lint/wording.py",
    "tests/unit/tools/test_lint_wording.py",
)


def check(paths: Iterable[str] | None = None) -> list[Finding]:
    """The findings in *paths*, relative to the repository; all its files by default."""
    chosen = _tracked() if paths is None else paths
    return sorted(
        finding
        for path in chosen
        if path.endswith(SUFFIXES) and path not in LEFT_OUT and not path.startswith(GENERATED)
        for finding in found(path, (ROOT / path).read_text())
    )


def found(path: str, text: str) -> list[Finding]:
    """The findings in the file *path* with the contents *text*."""
    if not _ANY.search(text):
        return []
    findings = [
        Finding(path, line + part.count("\n", 0, match.start()), f"'{match[0]}': {phrase.advice}")
        for line, part in texts(path, text)
        for phrase, pattern in _PATTERNS
        for match in pattern.finditer(part)
    ]
    if path.endswith(".py"):
        findings += _openings(path, text)
    return findings


def texts(path: str, text: str) -> Iterator[tuple[int, str]]:
    """The parts of a file that people read, each with its first line, counted from 1."""
    if path.endswith(".md"):
        yield 1, _CODE.sub("``", _FENCED.sub(lambda block: "\n" * block[0].count("\n"), text))
    elif path.endswith(".py"):
        yield from _python(text)
    else:
        yield 1, text


def _python(text: str) -> Iterator[tuple[int, str]]:
    """Comments and strings; comments of consecutive lines are one part."""
    comments: list[str] = []
    first = 0
    readable = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if comments and first + len(comments) != token.start[0]:
                yield first, "\n".join(comments)
                comments = []
            first = first if comments else token.start[0]
            comments.append(token.string)
        elif token.type in readable and " " in token.string:  # else it is a name
            yield token.start[0], token.string
    if comments:
        yield first, "\n".join(comments)


def _openings(path: str, text: str) -> Iterator[Finding]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text, path)):
        if isinstance(node, kinds) and (opening := _OPENING.match(ast.get_docstring(node) or "")):
            line = node.body[0].lineno
            advice = "start with an imperative or a noun"
            yield Finding(path, line, f"docstring starts with '{opening[0]}': {advice}")


def _tracked() -> Sequence[str]:
    """All files of the repository that exist; the folder is not a checkout in a source archive."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        return [
            each.relative_to(ROOT).as_posix()
            for folder in ("bench", "broker_core", "docs", "helm", "proxy", "testkit", "tests")
            for each in (ROOT / folder).rglob("*")
            if each.is_file()
        ]
    return [name for name in listed.stdout.split("\0") if name and Path(ROOT, name).is_file()]
