"""A hook of MkDocs: pages of the site that stand outside ``docs/``, and links between all of them.

A document links to others by its place in the repository, so that who reads it there gets on. The
site has the same documents at other places: links between them are rewritten, and one to a file
that is no page becomes the file's name, for the site does not have it. What leads nowhere stays as
it is, and ``mkdocs build --strict`` ends with it.
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

#: Page of the site → where it stands in the repository.
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
#: What pages show that stands outside, likewise.
ICON = ("pictures/icon.svg", "proxy/console/static/icon.svg")
_PAGES = {path: page for page, path in OUTSIDE.items()} | {"README.md": "index.md"}

# Code first where it comes first: in C++ a lambda looks like a link.
_CODE_OR_LINK = re.compile(
    r"^ *(?P<fence>`{3,}|~{3,}).*?^ *(?P=fence)[ ]*$"
    r"|\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)\)"
    r"|(?P<ticks>`+)[^`].*?(?<!`)(?P=ticks)(?!`)",
    flags=re.M | re.S,
)
# What a page loads as it is shown; links that are followed by a click may lead anywhere.
_LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?((?:https?:)?//[^\s\">]+)"
    r"|<link\b[^>]*\brel=\"?(?:stylesheet|preconnect|icon)[^>]*\bhref=\"?((?:https?:)?//[^\s\">]+)"
)


def source_of(page: str) -> str:
    """Where the site's *page* stands in the repository."""
    return OUTSIDE.get(page, f"{DOCS}/{page}")


def with_links_of_the_site(markdown: str, *, page: str) -> str:
    """*markdown*, the text of the site's *page*, with its links as the site needs them."""

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
    """What the page *html* would have a browser load from another host."""
    return [found[1] or found[2] for found in _LOADED.finditer(html)]


# ---- what MkDocs calls --------------------------------------------------------------------------


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """The pages from outside are added, and the icon."""
    from mkdocs.structure.files import File

    for page, path in (*OUTSIDE.items(), ICON):
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links are rewritten."""
    return with_links_of_the_site(markdown, page=page.file.src_uri)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """A page that loads something from elsewhere ends the build."""
    from mkdocs.exceptions import PluginError

    if found := loaded_from_elsewhere(output):
        raise PluginError(
            f"{page.file.src_uri}: it would load {found[0]}; the site has to do alone"
        )
    return output
