"""MkDocs hook: pages of the site from outside ``docs/``, and links between all of them.

Documents link to each other by their places in the repository. The site has them at other places:
links between them are rewritten, and a link to a file that is not a page becomes the file's name.
Broken links stay as they are, and ``mkdocs build --strict`` fails on them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs"

#: Page of the site → its place in the repository.
OUTSIDE: Mapping[str, str] = {
    "architecture.md": "ARCHITECTURE.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "clients/cpp.md": "thin_client/cpp/README.md",
    "clients/go.md": "thin_client/go/README.md",
    "clients/java.md": "thin_client/java/README.md",
    "clients/node.md": "thin_client/node/README.md",
}
#: The icon of pages, likewise.
ICON = ("pictures/icon.svg", "proxy/console/static/icon.svg")
_PAGES = {path: page for page, path in OUTSIDE.items()} | {"README.md": "index.md"}

# Code has precedence over links: in C++ a lambda looks like a link.
_CODE_OR_LINK = re.compile(
    r"^ *(?P<fence>`{3,}|~{3,}).*?^ *(?P=fence)[ ]*$"
    r"|\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)\)"
    r"|(?P<ticks>`+)[^`].*?(?<!`)(?P=ticks)(?!`)",
    flags=re.M | re.S,
)
# Resources that a page loads when it is shown; links to click may lead anywhere.
_LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?((?:https?:)?//[^\s\">]+)"
    r"|<link\b[^>]*\brel=\"?(?:stylesheet|preconnect|icon)[^>]*\bhref=\"?((?:https?:)?//[^\s\">]+)"
)


def source_of(page: str) -> str:
    """Return the place in the repository of the site's *page*."""
    return OUTSIDE.get(page, f"{DOCS}/{page}")


def with_links_of_the_site(markdown: str, *, page: str) -> str:
    """Return *markdown*, the text of the site's *page*, with links rewritten for the site."""

    def rewritten(found: re.Match[str]) -> str:
        if found["target"] is None or re.match(r"#|/|[a-z][a-z0-9+.-]*:", found["target"]):
            return found[0]
        target, mark, anchor = found["target"].partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source_of(page)), target))
        if path in _PAGES:
            place = _PAGES[path]
        elif path.startswith(f"{DOCS}/"):
            place = path.removeprefix(f"{DOCS}/")
        elif (ROOT / path).exists():
            return _named(found["text"], path)
        else:
            return found[0]
        start = posixpath.dirname(page) or "."
        return f"[{found['text']}]({posixpath.relpath(place, start)}{mark}{anchor})"

    return _CODE_OR_LINK.sub(rewritten, markdown)


def _named(text: str, path: str) -> str:
    plain = text.strip("`")
    return f"`{path}`" if path.endswith(plain) else f"{text} (`{path}`)"


def loaded_from_elsewhere(html: str) -> list[str]:
    """Return what the page *html* would load from another host."""
    return [found[1] or found[2] for found in _LOADED.finditer(html)]


# ---- hooks of MkDocs ----------------------------------------------------------------------------


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages from outside, and the icon."""
    from mkdocs.structure.files import File

    for page, path in (*OUTSIDE.items(), ICON):
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links."""
    return with_links_of_the_site(markdown, page=page.file.src_uri)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Fail the build if a page loads something from another host."""
    from mkdocs.exceptions import PluginError

    if found := loaded_from_elsewhere(output):
        raise PluginError(f"{page.file.src_uri}: it loads {found[0]} from another host")
    return output
