"""A gateway for tests of applications, in their own process; needs the extra ``testing``.

``Gateway`` and ``AsyncGateway`` run nameserver, broker and proxy with a folder of their own, so a
test needs no server and leaves nothing behind. In virtual time (``run_in_virtual_time``) a retry
after a minute takes less than a second, and the order of events depends on a seed alone.
"""

from __future__ import annotations

from orderlane.testing.gateway import AsyncGateway, Gateway
from orderlane.testing.virtual_time import run_in_virtual_time, virtual_time_loop

__all__ = ["AsyncGateway", "Gateway", "run_in_virtual_time", "virtual_time_loop"]
