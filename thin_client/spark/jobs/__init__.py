"""Spark jobs: each is a function that takes a session, and a verb of ``orderlane spark``.

They use the source and the sink as applications do, through Spark's public interfaces.
"""
