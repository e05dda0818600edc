"""Histories: what every process can write down of a run, and the checker of what must hold in it.

Here belong the writer, the reader and the invariants. Never here: anything that the running proxy
depends on; a history is evidence, not state. ``docs/history.md`` is the contract of the events.
"""
