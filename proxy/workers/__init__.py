"""``--workers N``: several proxies on one machine, behind shared addresses.

Each worker is a complete proxy process with its own ports and client id; the workers share queues
like any other proxies. A small process, the *supervisor* (``supervisor.py``), listens on the shared
addresses of the settings (``shared_listener.py``) and passes each connection to the worker with the
fewest; it restarts and stops workers. A lease exists in one worker only, so ``home`` in its answers
is the worker's own port. Both sides communicate over a socket pair (``channel.py``); ``intake.py``
is the worker's side. ``addresses``, ``loads`` and ``restarts`` decide, without I/O.
"""
