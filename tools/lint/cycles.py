"""No import cycles: neither modules nor packages import each other in a circle.

Imports below ``if TYPE_CHECKING`` count as any other: two files that name each other's types have
to be understood together. The nodes of the second graph are folders; a module directly in a folder
with sub-packages is a node of its own, since it may be above some of them and below others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import grimp

from tools.lint.source import PRODUCT, ROOT, Finding

#: Imports by module. Every module is a key, and imports of other projects are left out.
Graph = Mapping[str, frozenset[str]]

#: Checked packages; the generated one is checked only for its importers.
PACKAGES = (*PRODUCT, "bench", "thrift_idl")


def imports(packages: Iterable[str] = PACKAGES) -> Graph:
    """Return the imports among *packages*, which have to be importable."""
    graph = grimp.build_graph(*packages, cache_dir=str(ROOT / ".grimp_cache"))
    return {
        each: frozenset(graph.find_modules_directly_imported_by(each)) for each in graph.modules
    }


def check(graph: Graph) -> list[Finding]:
    """Return a finding for each cycle of modules, and of packages."""
    found = [_finding("modules", circle, graph) for circle in circles(graph)]
    nodes = Nodes(graph)
    for circle in circles(package_graph(graph)):
        inside = {name: graph[name] for name in graph if nodes.of(name) in circle}
        found.append(_finding("packages", circle, inside))
    return sorted(found)


def _finding(of: str, circle: list[str], graph: Graph) -> Finding:
    """Return a finding at the first member of *circle*, with the imports within it."""
    nodes = Nodes(graph)
    some = [
        f"{name} -> {other}"
        for name in sorted(graph)
        for other in sorted(graph[name])
        if (nodes.of(name) if of == "packages" else name) in circle
        and (nodes.of(other) if of == "packages" else other) in circle
        and (of == "modules" or nodes.of(name) != nodes.of(other))
    ]
    more = f", and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""
    path = circle[0].replace(".", "/")
    path = path if (ROOT / path).is_dir() else f"{path}.py"
    return Finding(path, 1, f"{of} in a circle: {', '.join(some[:_SHOWN])}{more}")


_SHOWN = 8


class Nodes:
    """Maps modules to nodes of the graph of packages."""

    def __init__(self, modules: Iterable[str]) -> None:
        names = set(modules)
        self._packages = {name.rpartition(".")[0] for name in names} & names
        self._parents = {name.rpartition(".")[0] for name in self._packages}

    def of(self, module: str) -> str:
        """Return *module* if it is a package or has packages beside it, else its package."""
        if module in self._packages:
            return module
        package = module.rpartition(".")[0]
        return module if not package or package in self._parents else package


def package_graph(graph: Graph) -> Graph:
    """Return the imports of *graph* between its packages."""
    nodes = Nodes(graph)
    between: dict[str, set[str]] = {}
    for name, others in graph.items():
        node = nodes.of(name)
        between.setdefault(node, set()).update(nodes.of(other) for other in others)
    return {node: frozenset(others - {node}) for node, others in between.items()}


def circles(graph: Graph) -> list[list[str]]:
    """Return groups of nodes that reach each other, each sorted (Tarjan's algorithm, with a
    stack).
    """
    return sorted(sorted(group) for group in _components(graph) if len(group) > 1)


def _components(graph: Graph) -> Iterator[list[str]]:
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    for start in sorted(graph):
        if start in index:
            continue
        work = [(start, iter(sorted(graph[start])))]
        index[start] = low[start] = len(index)
        path.append(start)
        on_path.add(start)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in graph:
                    continue
                if other not in index:
                    index[other] = low[other] = len(index)
                    path.append(other)
                    on_path.add(other)
                    work.append((other, iter(sorted(graph[other]))))
                    break
                if other in on_path:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = path[path.index(node) :]
                    del path[-len(group) :]
                    on_path.difference_update(group)
                    yield group
