"""The frame of all cases of ``orderlane bench``: what a case is, the order in which its arms take
their turns, what is kept of each run, and the tables and plots that are made of it.
"""
