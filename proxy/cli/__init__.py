"""The command line ``orderlane``: one file per noun, registered in ``main``.

Here belong options, process start and shutdown, and printed output; decisions that need tests of
their own belong elsewhere. A command raises an OrderlaneError (or another error handled by
``main``) to end with one sentence on stderr and exit code 2.
"""
