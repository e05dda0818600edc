"""The command line: one file a noun or process, registered in ``main.py``.

A root: it may know all parts. Data goes to stdout, what people read about it to stderr.
"""
