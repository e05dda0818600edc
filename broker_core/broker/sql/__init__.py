"""Filters on properties, RocketMQ's SQL92 subset: compiles a text into a predicate. Pure.

tokens    splits a text into words with positions
values    compares two values as Java's expressions do
nodes     an expression as a tree of functions
parser    builds the tree; other packages call ``compile_filter``

Source: the grammar ``SelectorParser.jj`` and its expressions in Apache RocketMQ 5.3.3. Its results
are reproduced, including the odd ones: NOT binds tighter than a comparison, and a property that is
not a number in a numeric comparison rejects the message. Existing SQL parsers behave like
databases, hence this one.
"""
