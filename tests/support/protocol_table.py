"""The request codes listed in ``docs/protocol.md``."""

from __future__ import annotations

import re

from testkit.processes import ROOT

BROKER, TO_CLIENTS, NAMESERVER = (
    "Served by the broker",
    "Sent by the broker",
    "Served by the nameserver",
)
LATER, NEVER = "Later", "Never"


def documented() -> dict[str, dict[int, str]]:
    """Return the codes by heading, each with its name; a code is listed once per heading."""
    text = (ROOT / "docs/protocol.md").read_text().partition("### Request codes\n")[2]
    sections = re.split(r"^#### (.*)\n", text, flags=re.M)
    found: dict[str, dict[int, str]] = {}
    for heading, section in zip(sections[1::2], sections[2::2], strict=True):
        pattern = (
            r"\b(\d+)\s+([A-Z][A-Z0-9_]+)\b"
            if heading in (LATER, NEVER)
            else (r"^\| (\d+) \| ([A-Z0-9_]+) \|")
        )
        pairs = re.findall(pattern, section, flags=re.M)
        found[heading] = {int(code): name for code, name in pairs}
        assert len(found[heading]) == len(pairs), heading
    return found


def all_documented() -> dict[int, str]:
    """Return every code of the document with its name."""
    sections = documented().values()
    merged = {code: name for section in sections for code, name in section.items()}
    assert len(merged) == sum(map(len, sections)), "a code stands under two headings"
    return merged


def since() -> dict[int, str]:
    """Return the RocketMQ version that introduced each code in a table."""
    text = (ROOT / "docs/protocol.md").read_text()
    return {
        int(code): lines for code, lines in re.findall(r"^\| (\d+) \| \w+ \| (.*?) \|", text, re.M)
    }
