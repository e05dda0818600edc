"""Programs for work on orderlane itself; none of them is installed with it."""
