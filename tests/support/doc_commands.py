"""Commands in documents: found in code blocks and in inline code.

Pure: text in, commands with their page and line out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

#: Blocks in these languages contain commands; blocks without a language do if a line begins like
#: one.
SHELLS = frozenset({"sh", "bash", "shell", "console"})
PLAIN = frozenset({"", "text"})
#: First words of commands in blocks without a language, and in inline code.
PROGRAMS = ("orderlane", "make", "curl", "python", "python3", "docker", "helm", "kubectl", "pip")

_FENCE = re.compile(r"^( *)```([\w-]*) *$")
_INDENT = "    "
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", flags=re.S)
_FILE = re.compile(r"`([\w.-]+\.(?:ya?ml|py|json|sh))`")
_PROMPT = "$ "
_ASSIGNMENT = re.compile(r"[A-Z_]+=")
_OPERATORS = frozenset("();<>|&")


@dataclass(frozen=True, slots=True)
class Block:
    """A code block. *line* is the number of its first line in *page*, from 1."""

    page: str
    line: int
    language: str
    lines: tuple[str, ...]
    section: str
    """The heading above it."""
    before: str
    """The paragraph above it."""

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def file(self) -> str | None:
        """The file that the block shows, if the paragraph above ends with a colon and names exactly
        one.
        """
        named = _FILE.findall(self.before)
        one = len(named) == 1 and self.before.endswith(":") and not self.has_commands
        return named[0] if one else None

    @property
    def prompted(self) -> bool:
        """Whether commands follow ``$`` and their output stands below them."""
        shell = self.language in SHELLS | PLAIN
        return shell and any(line.startswith(_PROMPT) for line in self.lines)

    @property
    def has_commands(self) -> bool:
        if self.language in SHELLS or self.prompted:
            return True
        first = next((line for line in self.lines if line and not line.startswith("#")), "")
        return self.language in PLAIN and begins_like_a_command(first)


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a page, as typed, with its documented output."""

    page: str
    line: int
    text: str
    shown: tuple[str, ...] = ()
    inline: bool = False
    """Whether it is inline code, which may be only the name of a verb or lack arguments."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class Simple:
    """A program and its words: one part of a command."""

    words: tuple[str, ...]

    @property
    def program(self) -> str:
        return self.words[0]


def begins_like_a_command(line: str) -> bool:
    """Return whether its first word is one of ``PROGRAMS``."""
    return line.split(" ")[0] in PROGRAMS


def blocks_of(page: str, text: str) -> list[Block]:
    """Return all code blocks of a Markdown document: fenced, or indented with commands."""
    found: list[Block] = []
    lines = text.split("\n")
    section, paragraph, at = "", "", 0
    while at < len(lines):
        line = lines[at]
        if fence := _FENCE.match(line):
            end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == "```"), None)
            if end is None:
                raise ValueError(f"{page}:{at + 1}: a block of code that nothing ends")
            inside = tuple(each.removeprefix(fence[1]) for each in lines[at + 1 : end])
            found.append(Block(page, at + 2, fence[2], inside, section, paragraph))
            at = end
        elif _begins_indented(lines, at):
            end = next((n for n in range(at, len(lines)) if not _belongs(lines[n])), len(lines))
            inside = tuple(each.removeprefix(_INDENT) for each in lines[at:end])
            found.append(Block(page, at + 1, "sh", inside, section, paragraph))
            at = end - 1
        elif line.startswith("#"):
            section, paragraph = line.lstrip("# "), ""
        elif line:
            paragraph = f"{paragraph} {line}".strip() if at and lines[at - 1] else line
        at += 1
    return found


def _belongs(line: str) -> bool:
    return line.startswith(_INDENT)


def _begins_indented(lines: Sequence[str], at: int) -> bool:
    alone = at == 0 or not lines[at - 1]
    return alone and _belongs(lines[at]) and begins_like_a_command(lines[at].strip())


def commands_of(blocks: Iterable[Block]) -> Iterator[Command]:
    """Yield the commands of *blocks*. Raises ValueError for a command without an end."""
    for block in blocks:
        if block.prompted:
            yield from _prompted(block)
        elif block.has_commands:
            yield from _typed(block)


def _prompted(block: Block) -> Iterator[Command]:
    """Yield commands that follow ``$``; the lines up to the next one are the output."""
    lines, at = block.lines, 0
    while at < len(lines):
        if not lines[at].startswith(_PROMPT):
            raise ValueError(f"{block.page}:{block.line + at}: output without a command")
        typed = (lines[at].removeprefix(_PROMPT), *lines[at + 1 :])
        command, taken = _one(block, typed, at)
        at += taken
        end = next((n for n in range(at, len(lines)) if lines[n].startswith(_PROMPT)), len(lines))
        yield replace(command, shown=tuple(line for line in lines[at:end] if line.strip()))
        at = end


def _typed(block: Block) -> Iterator[Command]:
    """Yield consecutive commands, skipping lines of comments."""
    at = 0
    while at < len(block.lines):
        line = block.lines[at].strip()
        if not line or line.startswith("#"):
            at += 1
            continue
        command, taken = _one(block, block.lines[at:], at)
        yield command
        at += taken


def _one(block: Block, lines: Sequence[str], at: int) -> tuple[Command, int]:
    """Return the command at the start of *lines* and the number of lines it takes."""
    where = f"{block.page}:{block.line + at}"
    for taken in range(1, len(lines) + 1):
        text = "\n".join(lines[:taken])
        if text.endswith("\\"):
            continue
        if heredoc := _HEREDOC.search(lines[0]):
            if taken == 1 or lines[taken - 1].strip() != heredoc[2]:
                continue
            return Command(block.page, block.line + at, text), taken
        try:
            shlex.split(text, comments=True)
        except ValueError:  # a quote that a later line closes
            continue
        return Command(block.page, block.line + at, text), taken
    raise ValueError(f"{where}: a command that does not end: {lines[0]}")


def inline_commands(page: str, text: str) -> Iterator[Command]:
    """Yield inline code that begins with one of ``PROGRAMS``."""
    prose = _without_blocks(text)
    for line, span in _spans(prose):
        if begins_like_a_command(span) and " " in span:
            yield Command(page, line, span, inline=True)


def inline_options(page: str, text: str) -> Iterator[Command]:
    """Yield options (``--name …``) that are inline code by themselves."""
    for line, span in _spans(_without_blocks(text)):
        if re.match(r"--[a-z]", span):
            yield Command(page, line, span, inline=True)


def _spans(prose: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of all inline code, joining code that is broken over two lines."""
    at = 0
    for paragraph in re.split(r"(\n\s*\n)", prose):
        for found in _SPAN.finditer(paragraph):
            line = prose.count("\n", 0, at + found.start()) + 1
            yield line, " ".join(found[2].split())
        at += len(paragraph)


def _without_blocks(text: str) -> str:
    """Return the lines with those of fenced blocks emptied."""
    lines, inside = [], False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        lines.append("" if inside or fence else line)
        inside ^= fence
    return "\n".join(lines)


def parts_of(command: str) -> list[Simple]:
    """Return the programs of a shell command, without redirections and assignments."""
    parts: list[list[str]] = [[]]
    target = False
    for word in _words(command):
        if set(word) <= _OPERATORS:
            target = "<" in word or ">" in word
            if target and parts[-1] and f" {parts[-1][-1]}{word}" in command:
                parts[-1].pop()  # the file descriptor of a redirection
            if not target:
                parts.append([])
        elif target:
            target = False
        elif parts[-1] or not _ASSIGNMENT.match(word):
            parts[-1].append(word)
    return [Simple(tuple(words)) for words in parts if words]


def is_simple(command: str) -> bool:
    """Return whether it is one program and its words, without shell syntax."""
    words = _words(command)
    quoted = re.sub(r"'[^']*'", "", re.sub(r"\s#.*", "", command))
    return (
        not _HEREDOC.search(command)
        and not any(set(word) <= _OPERATORS or _ASSIGNMENT.match(word) for word in words)
        and not re.search(r"[~$*`]", quoted)
    )


def _words(command: str) -> list[str]:
    if _HEREDOC.search(first := command.split("\n")[0]):
        command = first
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)
