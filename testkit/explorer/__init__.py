"""Explores simulated worlds: draws plans, plays them, judges their histories, shrinks failures.

A plan is data: the nodes of a world and its timed actions. The same plan produces the same history,
byte for byte. ``make explore`` runs it.
"""
