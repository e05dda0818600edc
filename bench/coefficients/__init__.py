"""What each thing costs: small real runs in which one thing is varied at a time, and slopes.

``python -m bench.coefficients`` writes ``bench/results/coefficients.json``; ``docs/scale.md`` and
the simulation go by it.
"""
