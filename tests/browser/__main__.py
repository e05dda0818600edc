"""``make test-browser``: the console in real Chromium; further arguments go to pytest.

``--part`` runs the tests of ``PART``.
"""

from __future__ import annotations

import sys

from tests.browser.tools import missing
from tests.support.suites import pytest_suite

#: Every page once, live figures, the keyboard, and one operation from its preview to its result.
PART = (
    "tests/browser/test_pages.py::test_every_page[light-1280]",
    "tests/browser/test_frame.py::test_figures_change_by_themselves",
    "tests/browser/test_frame.py::test_the_keyboard_is_enough",
    "tests/browser/test_frame.py::test_where_tokens_are_asked_for_one_is_given_once_a_tab",
    "tests/browser/test_operations.py::test_a_poison_message_is_looked_at_parked_and_redriven_in_order",
    "tests/browser/test_operations.py::test_an_operation_without_a_preview_is_not_done",
    "tests/browser/test_topic_pages.py::test_a_message_is_sent_and_sent_again",
)

if __name__ == "__main__":
    sys.exit(pytest_suite("test-browser", "tests/browser", part=PART, missing=missing))
