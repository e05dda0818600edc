"""The files of the console and their response headers."""

from __future__ import annotations

from importlib import resources

from aiohttp import web

from proxy.admin.operations import CONSOLE, CONSOLE_FILE, HTML, Call, Operation, get
from proxy.console.key_verbs import NAME, key_verbs_js
from proxy.errors import UnknownName

_PACKAGE = __name__.rpartition(".")[0]
_KINDS = {
    "css": "text/css",
    "html": HTML,
    "js": "text/javascript",
    "svg": "image/svg+xml",
}

#: Pages load and run files of this port only, and never create HTML from text: the content of a
#: key or a message is always shown as text.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)


class Pages:
    """Serves ``GET /`` and the files it loads; all are read or generated once, at the start."""

    def __init__(self) -> None:
        folder = resources.files(_PACKAGE) / "static"
        self._files = {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}
        self._files[NAME] = key_verbs_js()

    @property
    def names(self) -> list[str]:
        """Names of all files."""
        return sorted(self._files)

    def operations(self) -> list[Operation]:
        """Return the operations. They are for browsers, so the OpenAPI document omits them."""
        more = {"media": HTML, "documented": False}
        return [
            get(CONSOLE, "The console.", self._index, **more),
            get(CONSOLE_FILE, "A file of the console.", self._file, **more),
        ]

    async def _index(self, _call: Call) -> web.Response:
        return self._answer("index.html")

    async def _file(self, call: Call) -> web.Response:
        return self._answer(call.path["file"])

    def _answer(self, name: str) -> web.Response:
        content = self._files.get(name)
        kind = _KINDS.get(name.rpartition(".")[2])
        if content is None or kind is None:
            raise UnknownName(f"the console has no file {name[:100]!r}")
        return web.Response(
            body=content,
            content_type=kind,
            charset="utf-8",
            headers={"Content-Security-Policy": POLICY},
        )
