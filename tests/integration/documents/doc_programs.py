"""Programs of the documents, as tests run them: ``python -m
tests.integration.documents.doc_programs PROGRAM WORDS…``.

``orderlane`` is the real one, but servers listen on any free port, and options whose default is one
of the usual addresses get the local one. ``curl`` supports the options used in the documents,
refuses others, and fails if the answer is not a success.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence

import orjson

from proxy.cli import main
from tests.integration.documents.local_addresses import ADDRESSES, here

_TIMEOUT_S = 30


def run() -> None:
    """Run that program."""
    program, *words = sys.argv[1:]
    if program == "curl":
        sys.exit(_curl(words))
    main.run(here(words, orjson.loads(os.environ.get(ADDRESSES, "{}"))))


def _curl(words: Sequence[str]) -> int:
    rest, urls, body, method = list(words), [], None, None
    headers: dict[str, str] = {}
    while rest:
        match rest.pop(0):
            case "-s" | "-sS" | "-f" | "-N":
                pass
            case "-H":
                name, _, value = rest.pop(0).partition(":")
                headers[name] = value.strip()
            case "-d" if not rest[0].startswith("@"):
                body = rest.pop(0).encode()
            case "-X":
                method = rest.pop(0)
            case url if not url.startswith("-"):
                urls.append(url)
            case option:
                sys.stderr.write(f"curl: {option} is not known to the tests' stand-in\n")
                return 2
    for url in urls:
        asked = urllib.request.Request(url, body, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=_TIMEOUT_S) as answer:
                sys.stdout.write(answer.read().decode())
        except urllib.error.HTTPError as error:
            sys.stderr.write(f"curl: {error.code}: {error.read().decode()}\n")
            return 22
    return 0 if urls else 2


if __name__ == "__main__":
    run()
