"""Counts the elements of encoded Thrift structs before they are decoded: one walk per protocol,
which spend a common budget. Pure.
"""
