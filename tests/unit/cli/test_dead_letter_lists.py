"""``orderlane dead-letters ls`` searches all dead letters, of which one request reads a part."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson
import pytest

from proxy.cli import dead_letters
from tests.support.command_line import CommandLine


class Proxy:
    """A proxy that answers the requests for dead letters with *pages*."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        self._pages = pages
        self.asked: list[dict[str, str]] = []

    def ask(self, _http: str, path: str, **_: Any) -> bytes:
        """Return the next page."""
        page = self._pages[len(self.asked)]
        self.asked.append(dict(parse_qsl(urlsplit(path).query)))
        return orjson.dumps({"waiting": 30_000, "redrive": None, **page})


def _page(positions: str, *offsets: int, complete: bool = False) -> dict[str, Any]:
    letters = [
        {
            "dead_letter": f"broker-a_0@{offset}",
            "store_ms": offset,
            "first_failure_ms": None,
            "last_failure_ms": None,
        }
        for offset in offsets
    ]
    return {"positions": positions, "dead_letters": letters, "complete": complete}


def test_a_filter_is_applied_to_all_dead_letters(
    orderlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy(
        _page("broker-a_0@10000"),
        _page("broker-a_0@20000", 12_000),
        _page("broker-a_0@30000", 29_999, complete=True),
    )
    monkeypatch.setattr(dead_letters, "ask_proxy", proxy.ask)
    ended = orderlane("dead-letters", "ls", "billing", "--key", "k", "-o", "json")
    assert [row["dead_letter"] for row in ended.json] == ["broker-a_0@12000", "broker-a_0@29999"]
    assert ended.err == "30,000 dead letters of billing not redriven, 2 shown\n"
    first = {"key": "k", "limit": "100"}
    assert proxy.asked == [
        first,
        {**first, "positions": "broker-a_0@10000"},
        {**first, "limit": "99", "positions": "broker-a_0@20000"},
    ]


@pytest.mark.parametrize(
    ("pages", "limit"),
    [
        ((_page("broker-a_0@7", 5, 6),), 2),
        ((_page("broker-a_0@7", 5), _page("broker-a_0@7")), 2),  # the proxy comes no further
    ],
)
def test_the_list_may_be_incomplete(
    orderlane: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    pages: tuple[dict[str, Any], ...],
    limit: int,
) -> None:
    proxy = Proxy(*pages)
    monkeypatch.setattr(dead_letters, "ask_proxy", proxy.ask)
    ended = orderlane("dead-letters", "ls", "billing", "--limit", limit, "-o", "json")
    assert len(proxy.asked) == len(pages)
    assert "the list may be incomplete" in ended.err
