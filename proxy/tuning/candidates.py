"""Which order keys messages offer: queue, own key, and what stands in their bodies. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from proxy.core.keys.order_key import Keyed

#: How deep bodies are looked into, and how many paths are named: those in most messages.
_DEEPEST, _MOST = 4, 24
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def candidates_in(messages: Iterable[Keyed]) -> list[str]:
    """``QID``, ``KEY`` if some message has one, and JSON paths to texts and whole numbers in the
    bodies, those in most messages first; of equal ones in the order in which they stand there.
    """
    paths: Counter[str] = Counter()
    has_keys = False
    for message in messages:
        has_keys = has_keys or bool(message.key)
        try:
            document = orjson.loads(message.body)
        except orjson.JSONDecodeError:
            continue
        paths.update(_paths(document, "$", 1))
    found = [path for path, _ in paths.most_common(_MOST)]
    return ["QID", *(["KEY"] if has_keys else []), *found]


def _paths(value: Any, path: str, depth: int) -> Iterator[str]:
    """Lists are left out: at which place of one a key should stand, nobody could say."""
    if not isinstance(value, dict) or depth > _DEEPEST:
        return
    for name, inner in value.items():
        if _NAME.match(name):
            place = f"{path}.{name}"
        elif "'" in name or "\\" in name or not name.isprintable():
            continue
        else:
            place = f"{path}['{name}']"
        if isinstance(inner, dict):
            yield from _paths(inner, place, depth + 1)
        elif isinstance(inner, str) or (isinstance(inner, int) and not isinstance(inner, bool)):
            yield place
