"""The files of a release, and their checks: ``make release-check``.

``builds`` makes wheel and source archive so that the same sources give the same bytes,
``distributions`` checks them, ``bill_of_materials`` lists what a server installation consists of.
"""
