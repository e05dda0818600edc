"""Lint rules of this project that ruff and mypy do not have: ``python -m tools.lint``.

Each rule is a module with a function that returns findings. ``exceptions.toml`` lists the accepted
findings: per rule and file their number, with the reason. A file must have exactly that number, so
the list only shrinks.
"""
