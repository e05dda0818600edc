"""The site of the documents: its links, its pages from outside ``docs/``, its nav, its pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.site_pages import (
    OUTSIDE,
    ROOT,
    loaded_from_elsewhere,
    source_of,
    with_links_of_the_site,
)

PICTURES = sorted((ROOT / "docs/pictures").glob("*.svg"))
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


@pytest.mark.parametrize(
    ("page", "markdown", "expected"),
    [
        ("faq.md", "[x](spark.md#columns)", "[x](spark.md#columns)"),
        ("faq.md", "[x](../SECURITY.md#reporting)", "[x](security.md#reporting)"),
        ("faq.md", "[x](../thin_client/go/README.md)", "[x](clients/go.md)"),
        ("clients/go.md", "[x](../../docs/spark.md)", "[x](../spark.md)"),
        ("clients/go.md", "[x](../java/README.md)", "[x](java.md)"),
        ("security.md", "[x](docs/operating.md)", "[x](operating.md)"),
        ("security.md", "[start](README.md)", "[start](index.md)"),
        ("faq.md", "![x](plots/zipf-embedded.svg)", "![x](plots/zipf-embedded.svg)"),
        ("contributing.md", "[a](CHANGELOG.md), [b](LICENSE)", "[a](changelog.md), b (`LICENSE`)"),
    ],
)
def test_links_lead_to_pages_of_the_site(page: str, markdown: str, expected: str) -> None:
    assert with_links_of_the_site(markdown, page=page) == expected


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("[the proxy's `app.py`](../proxy/app.py)", "the proxy's `app.py` (`proxy/app.py`)"),
        ("[`app.py`](../proxy/app.py)", "`proxy/app.py`"),
        ("[proxy](../proxy)", "`proxy`"),
    ],
)
def test_a_file_that_is_no_page_is_named(markdown: str, expected: str) -> None:
    assert with_links_of_the_site(markdown, page="faq.md") == expected


@pytest.mark.parametrize(
    "markdown",
    [
        "[x](#here)",
        "[x](https://example.com/a)",
        "[x](mailto:a@example.com)",
        "[x](/settings/)",
        "[x](../no/such/file.md)",  # --strict finds it
        "`[x](../SECURITY.md)`",
        "``[x](../SECURITY.md) ` ``",
        "```cpp\nrun([&](Message& message) {});\n[x](../SECURITY.md)\n```\n",
        "~~~\n[x](../SECURITY.md)\n~~~\n",
    ],
)
def test_what_is_no_link_to_a_page_stays(markdown: str) -> None:
    assert with_links_of_the_site(markdown, page="faq.md") == markdown


def test_links_behind_code_are_rewritten() -> None:
    text = "```\na\n```\n`b` [`c`](../SECURITY.md) `d`\n```\ne\n```\n[f](../CHANGELOG.md)"
    expected = "```\na\n```\n`b` [`c`](security.md) `d`\n```\ne\n```\n[f](changelog.md)"
    assert with_links_of_the_site(text, page="faq.md") == expected


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ('<script src="https://cdn.example/x.js"></script>', ["https://cdn.example/x.js"]),
        ("<img alt=x src=//cdn.example/x.png>", ["//cdn.example/x.png"]),
        ('<link rel="stylesheet" href="https://a.example/f.css">', ["https://a.example/f.css"]),
        ('<img src="../plots/x.svg"><script>var a = "https://b.example"</script>', []),
        ('<a href="https://example.com">x</a><link rel="next" href="../faq/">', []),
    ],
)
def test_what_a_page_loads_from_another_host_is_found(html: str, expected: list[str]) -> None:
    assert loaded_from_elsewhere(html) == expected


def _in_nav(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry if isinstance(entry, list) else entry.values():
            yield from _in_nav(each)


def test_every_page_is_in_the_nav_once() -> None:
    """Also checked by ``make docs``, which needs MkDocs."""
    docs = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert not docs & set(OUTSIDE)
    assert sorted(_in_nav(SITE["nav"])) == sorted([*docs, *OUTSIDE])


def test_pages_from_outside_exist() -> None:
    assert [path for path in OUTSIDE.values() if not (ROOT / path).is_file()] == []
    assert source_of("clients/go.md") == "thin_client/go/README.md"
    assert source_of("faq.md") == "docs/faq.md"


def test_a_wrong_link_ends_the_build() -> None:
    """By default MkDocs only logs most of them."""
    assert SITE["strict"] is True
    assert {level for rules in SITE["validation"].values() for level in rules.values()} == {"warn"}


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: str(picture.name))
def test_pictures_can_be_read_in_light_and_in_dark(picture: Path) -> None:
    """Each has its own background, a title for screen readers, and loads nothing."""
    text = picture.read_text()
    assert text.startswith('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ')
    assert "href" not in text
    assert "<title>" in text
    assert "@media (prefers-color-scheme: dark)" in text
