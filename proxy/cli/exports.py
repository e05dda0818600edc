"""Exports of messages: lines of JSON on stdout, progress on stderr."""

from __future__ import annotations

import time

from proxy.cli.connect import lines_of_proxy
from proxy.cli.output import print_json_line, say
from proxy.cli.owner_requests import say_missing
from proxy.diagnosis.findings import number

#: Time between two reports of progress.
REPORT_S = 5.0


def print_export(http: str, path: str, *, thing: str) -> int:
    """Print the lines of a stream of *thing*s ("message"), and their number every 5 s, also while
    the proxy searches and finds none. Return their number. Raises OrderlaneError.
    """
    printed, reported = 0, time.monotonic()
    for line in lines_of_proxy(http, path, on_unanswered=say_missing):
        if line:
            print_json_line(line)
            printed += 1
        if time.monotonic() - reported >= REPORT_S:
            reported = time.monotonic()
            say(f"{number(printed, thing)} so far")
    return printed
