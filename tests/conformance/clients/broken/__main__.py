"""``python -m tests.conformance.clients.broken NAME '{…}'``: run Python's program, broken so."""

from __future__ import annotations

import os
import sys

from testkit.thin_clients import program
from tests.conformance.clients.broken import asking, ending, holding, silent, telling
from tests.conformance.clients.broken.registry import BROKEN

#: Imported because they register broken clients.
KINDS = (asking, ending, holding, silent, telling)


if __name__ == "__main__":
    with BROKEN[sys.argv.pop(1)].applied():
        code = program.main()
        sys.stdout.flush()
        os._exit(code)
