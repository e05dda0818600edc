"""The limit of open files and connections of server processes."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress

#: Linux's default maximum per process.
_MOST = 1 << 20


def allow_more_descriptors() -> int:
    """Raise the limit of open descriptors as far as the system allows, and return it.

    The usual soft limit is 1,024, for programs that use ``select``: a tenth of a proxy's default
    number of connections. Child processes inherit the new limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # a system with a lower maximum keeps its limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if allowed == resource.RLIM_INFINITY else allowed
