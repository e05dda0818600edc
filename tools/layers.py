"""Picture of the layers in ``ARCHITECTURE.md``, from the contracts of ``pyproject.toml``.

``python -m tools.layers`` writes it between the marks ``<!-- layers -->`` and ``<!-- /layers -->``.
``--propose PACKAGE`` prints the layers of the current imports of *PACKAGE*, by the longest path
down, as lines for its contract.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import tomllib
from collections.abc import Collection, Iterator, Sequence
from functools import cache

from tools.lint.cycles import Graph, circles, imports
from tools.lint.source import ROOT

DOCUMENT = ROOT / "ARCHITECTURE.md"
BEGIN, END = "<!-- layers -->\n", "<!-- /layers -->"
_WIDTH = 100
#: Containers in the picture; the contracts have more, which newcomers do not need.
_DRAWN = ("", "proxy", "proxy.core", "proxy.upstream", "proxy.downstream", "broker_core.broker")


def contracts(pyproject: str) -> list[tuple[str, list[str]]]:
    """Return container ("" for none) and layers, highest first, of each contract of layers."""
    all_contracts = tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"]
    return [
        (container, each["layers"])
        for each in all_contracts
        if each["type"] == "layers"
        for container in each.get("containers", [""])
    ]


def picture(pyproject: str, containers: Collection[str] = _DRAWN) -> str:
    """Return the layers of *containers* as text, a paragraph for each."""
    drawn = (each for each in contracts(pyproject) if each[0] in containers)
    return "\n".join("".join(_paragraph(*each)) for each in drawn)


def _paragraph(container: str, layers: Sequence[str]) -> Iterator[str]:
    yield f"{container or 'everything'}\n"
    for layer in layers:
        lines = textwrap.wrap(
            layer, _WIDTH, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False
        )
        yield from (f"{line}\n" for line in lines)


def with_picture(document: str, drawn: str) -> str:
    """Return *document* with this picture between the marks. Raises ValueError without marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no marks {BEGIN.strip()} and {END}")
    return f"{before}{begin}```\n{drawn}```\n{end}{after}"


# ---- proposing ----------------------------------------------------------------------------------


def children(package: str, graph: Graph) -> Graph:
    """Return the imports between the modules and packages directly in *package*."""
    depth = package.count(".") + 2

    def top(module: str) -> str:
        return ".".join(module.split(".")[:depth])

    found: dict[str, set[str]] = {}
    for module, others in graph.items():
        if module.startswith(f"{package}."):
            found.setdefault(top(module), set()).update(
                top(other) for other in others if other.startswith(f"{package}.")
            )
    return {name: frozenset(others - {name}) for name, others in found.items()}


def levels(graph: Graph) -> list[list[str]]:
    """Return the nodes of *graph* by the longest path down, highest first.

    Raises ValueError for a cycle.
    """
    if there := circles(graph):
        raise ValueError(f"import cycle: {', '.join(there[0])}")

    @cache
    def level(name: str) -> int:
        return 1 + max(map(level, graph[name]), default=-1)

    by_level: dict[int, list[str]] = {}
    for name in sorted(graph):
        by_level.setdefault(level(name), []).append(name)
    return [by_level[each] for each in sorted(by_level, reverse=True)]


def proposed(package: str, graph: Graph) -> str:
    """Return lines for the contract of *package*."""
    rows = levels(children(package, graph))
    layers = (" | ".join(name.rpartition(".")[2] for name in names) for names in rows)
    return "".join(f'    "{layer}",\n' for layer in layers)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the picture, or print a proposal."""
    parser = argparse.ArgumentParser(prog="python -m tools.layers", description=__doc__)
    parser.add_argument("--propose", metavar="PACKAGE", help="print layers of this package")
    options = parser.parse_args(arguments)
    if options.propose:
        sys.stdout.write(proposed(options.propose, imports()))
    else:
        drawn = picture((ROOT / "pyproject.toml").read_text())
        DOCUMENT.write_text(with_picture(DOCUMENT.read_text(), drawn))


if __name__ == "__main__":
    main()
