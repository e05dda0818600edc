"""Histories: the events that processes record of a run, and the checker of the guarantees.

Contains the writer, the reader and the invariants. A history is evidence, not state: the running
proxy must not depend on anything here. ``docs/history.md`` is the contract of the events.
"""
