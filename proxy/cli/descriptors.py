"""How many files and connections a process that serves may have open."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress

#: What Linux allows a process at most, unless it was told otherwise.
_MOST = 1 << 20


def allow_more_descriptors() -> int:
    """Raise the number of descriptors that this process may have as far as the system lets it;
    return what it is then.

    The soft limit of a shell or a service is 1,024 as a rule, for the sake of programs that use
    ``select``: a tenth of the connections that a proxy takes by default. Processes that this one
    starts inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # a system that wants less keeps what it has
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if allowed == resource.RLIM_INFINITY else allowed
