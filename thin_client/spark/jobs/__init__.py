"""Whole jobs on Spark: each a function that takes a session, and a verb of ``orderlane spark``.

They use the source and the sink as any application would, through Spark's public interfaces.
"""
