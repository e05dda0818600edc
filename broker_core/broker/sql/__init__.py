"""Filters on properties: the SQL92 subset of RocketMQ, a text in, a test of properties out. Pure.

    tokens    a text cut into words, each with its place
    values    how two values compare, as Java's expressions do it
    nodes     an expression as a tree of tests, each one function
    parser    words into nodes; ``compile_filter`` is what others call

Source: the grammar ``SelectorParser.jj`` and the expressions beside it in Apache RocketMQ 5.3.3,
whose answers count, also the odd ones: NOT binds tighter than a comparison, a property that is no
number where one is compared makes the whole filter say no. Written by hand because of them: what
parsers of SQL there are answer as databases do.
"""
