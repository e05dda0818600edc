"""Benchmarks. ``bench_*.py`` are short and run by ``make bench``; the others are the cases of
``orderlane bench``: real processes, seeded, with histories that the checker judges.
"""
