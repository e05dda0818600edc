"""``--workers N``: several proxies on one machine, behind the addresses of one.

Each worker is a whole proxy in a process of its own, with ports of its own and a name of its own
among the members of its groups; it shares the queues with the others as any proxies do. Around them
is one small process, the *supervisor* (``supervisor.py``): it listens at the addresses of the
settings, the *doors* (``door.py``), and passes each connection to the worker with the fewest; it
starts workers again that ended, and stops them all. A lease is known to one worker alone, so the
``home`` in its answers names its own port. The two sides speak over a socket pair (``channel.py``);
``taking.py`` is the worker's. ``places``, ``loads`` and ``restarts`` decide, without I/O.
"""
