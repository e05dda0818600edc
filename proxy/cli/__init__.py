"""The command line ``orderlane``: one file a noun, registered in ``main``.

Here belong options, the start and end of processes, and what a person reads. Never here: decisions
that a test could not reach without a process. A command raises an OrderlaneError (or any error that
``main`` knows) to end with one sentence on stderr and exit code 2.
"""
