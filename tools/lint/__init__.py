"""Rules of this code base that ruff and mypy do not have: ``python -m tools.lint``.

Each rule is a module with a function that returns findings. What breaks a rule for a good reason,
or does not yet keep it, stands in ``exceptions.toml``: per rule and file a number of findings, with
the reason. A file may have neither more nor fewer than its number, so the list only shrinks.
"""
