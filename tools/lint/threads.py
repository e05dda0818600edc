"""A thread that writes files must end before the task that started it does.

A thread cannot be stopped, so ``asyncio.to_thread`` and ``run_in_executor`` in a cancelled task let
it write on after its files were closed, or opened again. In ``broker_core``, ``tasks.in_thread``
and ``in_thread_of`` take their place.
"""

from __future__ import annotations

import ast

from tools.lint.source import Finding, Source

_OWNERS = ("broker_core/tasks.py",)
_NAMES = frozenset({"to_thread", "run_in_executor"})


def check(source: Source) -> list[Finding]:
    """Return all uses in *source* of threads that may outlive their task."""
    if not source.path.startswith("broker_core/") or source.path in _OWNERS:
        return []
    return sorted(
        source.found(node, f"{node.attr} may outlive its task: use in_thread of broker_core.tasks")
        for node in source.nodes()
        if isinstance(node, ast.Attribute) and node.attr in _NAMES
    )
