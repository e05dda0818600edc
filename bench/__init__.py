"""Benchmarks: real processes with fixed seeds, judged by their histories or by the consumers'
counts.

``orderlane bench`` runs them. ``cases`` holds the cases built on ``bench/frame``; cases with
options of their own are beside it.
"""
