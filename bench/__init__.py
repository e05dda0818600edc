"""Benchmarks: real processes, seeded, judged by histories or by what consumers saw. ``orderlane
bench`` runs them; cases on the frame stand in ``cases``, those with options of their own beside it.
"""
