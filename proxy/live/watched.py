"""When the content of a file that is looked at now and then is to be loaded. Pure."""

from __future__ import annotations

import hashlib


class Watched:
    """A file that others write. Its content counts once it was the same at two looks: whoever
    writes it in place has written half of it for a moment, and half a list of groups is a list.
    """

    def __init__(self) -> None:
        self._loaded: bytes | None = None
        self._seen: bytes | None = None

    def look(self, content: bytes | None, *, at_once: bool = False) -> bool:
        """True if *content* (None: there is no file, or nobody may read it) is to be loaded now.

        *at_once*: whoever asks for it says that the file is whole; it is loaded again, too.
        """
        if content is None:
            self._seen = None
            return False
        digest = hashlib.sha256(content).digest()
        settled = at_once or (digest == self._seen and digest != self._loaded)
        self._seen = digest
        if settled:
            self._loaded = digest
        return settled
