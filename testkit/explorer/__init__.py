"""Explores simulated worlds: draws plans, plays them, judges their histories, shrinks what failed.

A plan is data: the parts of a world, and what happens to it when. The same plan brings the same
history, byte for byte. ``make explore`` runs it.
"""
