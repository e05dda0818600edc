"""The commands and programs of the documents work as printed, page by page.

Exceptions are listed in ``tests/support/doc_exceptions.py``; replacements of a page's names in
``doc_site.py`` and ``doc_stages.py``.
"""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from testkit.processes import Child, Ended, wait_until
from tests.integration.documents.doc_site import DocSite, doc_site, serves, understood
from tests.integration.documents.doc_stages import STAGES, replaced, staged
from tests.support.cli_words import verbs
from tests.support.doc_commands import Block, Command, blocks_of, commands_of
from tests.support.doc_exceptions import row_of
from tests.support.doc_words import PAGES, blocks_in, commands_in, name_of

pytestmark = pytest.mark.slow

#: Verbs that run until stopped, which happens after their first line.
ENDLESS = ("consume", "audit tail")
#: Allowed exit codes besides 0: the purpose of doctor is to find something.
CODES = {"doctor": (0, 1)}
#: Lines that a command prints, according to the page.
LINES = {"venv/bin/python quickstart.py": 10}


@dataclass(frozen=True, slots=True)
class Program:
    """A program of a page: its requirements, and the condition that ends it. It is stopped then, or
    at the end of the page if other programs need it.
    """

    until: Callable[[DocSite, Child], bool]
    sends: tuple[str, ...] = ()
    """Messages to send to these topics before."""
    stays: bool = False


def _printed(lines: int) -> Callable[[DocSite, Child], bool]:
    return lambda _, child: len(child.out) >= lines


def _ended(_: DocSite, child: Child) -> bool:
    return not child.running


def _charged(site: DocSite, _: Child) -> bool:
    with closing(sqlite3.connect(site.folder / "billing.db")) as db:
        names = db.execute("SELECT name FROM sqlite_master").fetchall()
        return ("charges",) in names and bool(db.execute("SELECT 1 FROM charges").fetchall())


def _refunded(site: DocSite, child: Child) -> bool:
    queues = site.look("/api/groups").get("python-app", {"queues": []})["queues"]
    refunds = [each["committed"] for each in queues if each["topic"] == "python-refunds"]
    return any(refunds) and len(child.out) >= 1


#: By page and heading.
PROGRAMS = {
    ("README.md", "A client"): Program(_printed(1), sends=("orders",)),
    ("docs/getting-started.md", "Send"): Program(_ended),
    ("docs/getting-started.md", "Consume"): Program(_printed(100), stays=True),
    ("docs/python-client.md", "Sending"): Program(_ended),
    ("docs/python-client.md", "Transactions"): Program(_ended),
    ("docs/python-client.md", "Forms"): Program(
        _refunded, sends=("python-orders", "python-refunds")
    ),
    ("docs/python-client.md", "Twice"): Program(_charged, sends=("python-charges",)),
}


def run_page(site: DocSite, blocks: list[Block]) -> None:
    """Run one block after the other; running servers must stop cleanly with the page."""
    going, files, ran = [], dict[str, str](), set[tuple[str, str]]()
    for block in blocks:
        place = block.page, block.section
        if place in PROGRAMS and block.language == "python":
            child = run_program(site, block, PROGRAMS[place])
            going += [child] if PROGRAMS[place].stays else []
            ran.add(place)
        elif block.file is not None:
            files[block.file] = block.text
        elif block.language == "json" and "prints" in block.before:
            assert orjson.loads(block.text).keys() == {"ready", *site.ready}, block
        for command in commands_of([block]):
            if row_of(command) is None:
                for name in [name for name in files if name in command.text]:
                    (site.folder / name).write_text(site.here(files.pop(name)))
                run_command(site, command)
    for child in going:
        assert child.terminate() == 0, child.err
    pages = {block.page for block in blocks}
    assert ran == {place for place in PROGRAMS if place[0] in pages}


def run_program(site: DocSite, block: Block, program: Program) -> Child:
    """Start the program and wait until its condition holds."""
    for topic in program.sends:
        site.send(topic, "customer-1", cents=1)
    child = site.start_python(block.text)
    wait_until(
        lambda: program.until(site, child) or not child.running,
        within_s=60,
        what=f"{block.page}:{block.line}: the program is through: {child.out}{child.err}",
    )
    assert program.until(site, child), f"{block.page}:{block.line}: {child.err}"
    if not program.stays:
        assert child.terminate() == 0, f"{block.page}:{block.line}: {child.err}"
    return child


def run_command(site: DocSite, command: Command) -> None:
    """Run a command to its end, or until it is ready, and check the result."""
    known = understood(command.text)
    text = site.here(command.text)
    if known is not None:
        text = replaced(text, staged(site, known))
    if (words := serves(text)) is not None:
        site.serve(words)
        return
    if known is not None:
        site.reach(known)
    if known is not None and known.verb in ENDLESS:
        child = site.start(text)
        child.wait_for(1, within_s=30)
        child.process.send_signal(signal.SIGINT)
        child.wait()
        assert "Traceback" not in child.err, f"{command}\n{child.err}"
        return
    ended = site.run(text)
    codes = CODES.get("" if known is None else known.verb, (0,))
    details = f"{command}\n{text}\n{ended.code}\n{ended.out}{ended.err}"
    lines = len(ended.out.splitlines())
    assert ended.code in codes, details
    assert lines == LINES.get(command.text, lines), details
    compare(command, ended)


def compare(command: Command, ended: Ended) -> None:
    """Assert that the output has the documented table head and first words of lines."""
    if command.shown:
        head, *rows = [line.split() for line in command.shown]
        real, *real_rows = [line.split() for line in ended.out.splitlines()]
        assert head == real, str(command)
        assert {row[0] for row in rows} == {row[0] for row in real_rows}, str(command)


def has_something_to_run(page: Path) -> bool:
    programs = name_of(page) in {of for of, _ in PROGRAMS}
    return programs or any(row_of(command) is None for command in commands_in(page))


@pytest.mark.parametrize("page", [*filter(has_something_to_run, PAGES)], ids=name_of)
def test_documented_commands_work(page: Path, tmp_path: Path) -> None:
    with doc_site(tmp_path) as site:
        run_page(site, list(blocks_in(page)))


def test_tables_name_existing_commands() -> None:
    assert STAGES.keys() | set(ENDLESS) | CODES.keys() <= verbs().keys()
    blocks = {(block.page, block.section) for page in PAGES for block in blocks_in(page)}
    assert PROGRAMS.keys() <= blocks
    assert LINES.keys() <= {each.text for page in PAGES for each in commands_in(page)}


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("```sh\norderlane topics --nameserver 127.0.0.1:1\n```", "127.0.0.1:1"),
        ("```sh\norderlane up --settings missing.yaml\n```", "missing.yaml"),
        ("```sh\norderlane groups create b --file b.yaml --reason r\n```", "b.yaml"),
        ("```sh\norderlane token me > nowhere/token\n```", "nowhere"),
        ("```\n$ orderlane topics\ntopic broker\n```", r"page\.md:2: orderlane topics"),
        ("```sh\ncurl -s http://127.0.0.1:9714/api/nothing\n```", "404"),
        ("```sh\ncurl --insecure http://127.0.0.1:9714/api/groups\n```", "--insecure"),
        ("```sh\ncat missing.txt\n```", "missing.txt"),
    ],
)
def test_wrong_commands_are_found(page: str, wrong: str, tmp_path: Path) -> None:
    with doc_site(tmp_path) as site, pytest.raises(Exception, match=wrong):
        run_page(site, blocks_of("page.md", page))
