"""Frame of all cases of ``orderlane bench``: case definitions, the order of runs, stored results,
tables and plots.
"""
