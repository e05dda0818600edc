"""Imports have no cycles."""

from __future__ import annotations

from tools.lint.cycles import Graph, check, circles, package_graph


def graph(**others: str) -> Graph:
    """Return a graph: for ``a_b="c d"``, a.b imports c and d. All parents are included."""
    named = {name.replace("_", "."): frozenset(each.split()) for name, each in others.items()}
    every = {*named, *(other for each in named.values() for other in each)}
    for name in list(every):
        while name := name.rpartition(".")[0]:
            every.add(name)
    return {name: named.get(name, frozenset()) for name in every}


def test_modules_that_reach_each_other_are_a_circle() -> None:
    made = graph(a_x="a.y", a_y="a.z", a_z="a.x a.w", a_w="")
    assert circles(made) == [["a.x", "a.y", "a.z"]]
    assert [str(each) for each in check(made)] == [
        "a/x.py:1: modules in a circle: a.x -> a.y, a.y -> a.z, a.z -> a.x"
    ]


def test_circles_that_share_a_module_are_one() -> None:
    assert circles(graph(a="b c", b="a", c="a", d="a")) == [["a", "b", "c"]]


def test_packages_have_circles_where_their_modules_have_none() -> None:
    made = graph(p_a_x="p.b.x", p_b_y="p.a.y")
    assert circles(made) == []
    assert [each.text for each in check(made)] == [
        "packages in a circle: p.a.x -> p.b.x, p.b.y -> p.a.y"
    ]


def test_a_module_beside_packages_stands_for_itself() -> None:
    made = graph(p_app="p.a.x", p_a_x="p.words")
    assert check(made) == []
    assert package_graph(made) == {
        "p": frozenset(),
        "p.app": {"p.a"},
        "p.a": {"p.words"},
        "p.words": frozenset(),
    }


def test_a_long_chain_is_looked_at_without_recursion() -> None:
    chain = {f"m{n:05}": frozenset({f"m{n + 1:05}"}) for n in range(20_000)}
    assert circles(chain | {"m20000": frozenset({"m00000"})}) == [[*sorted(chain), "m20000"]]
