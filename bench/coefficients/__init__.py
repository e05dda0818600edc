"""Cost coefficients from small real runs that vary one quantity at a time.

``python -m bench.coefficients`` writes ``bench/results/coefficients.json``, the input of
``docs/scale.md`` and of the simulation.
"""
