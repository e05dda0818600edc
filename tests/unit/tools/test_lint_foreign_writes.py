"""Only the file of a class assigns to attributes of its objects."""

from __future__ import annotations

from textwrap import indent

import pytest

from tools.lint.foreign_writes import check
from tools.lint.source import parsed

#: Another file of the project, whose class has the attribute that the tests set.
LANE = parsed("lane.py", "class Lane:\n    a: int\n    b: int")


def found(text: str, *, others: str = "") -> list[str]:
    files = [LANE, parsed("a.py", text), parsed("b.py", others)]
    return [each.text for each in check(files)]


@pytest.mark.parametrize(
    "statement",
    [
        "x.a = 1",
        "x.a += 1",
        "x.a: int = 1",
        "del x.a",
        "x.a, y = 1, 2",
        "[*x.a] = y",
        "for x.a in y: pass",
        "with y as x.a: pass",
        'setattr(x, "a", 1)',
        'delattr(x, "a")',
    ],
)
def test_whatever_sets_an_attribute_of_another_object_is_found(statement: str) -> None:
    assert found(f"def f(x, y):\n{indent(statement, '    ')}") == ["sets x.a"]


@pytest.mark.parametrize("owner", ["self.part", "self.parts[0]", "part()", "Part", "module.part"])
def test_parts_of_oneself_are_other_objects(owner: str) -> None:
    assert found(f"def f(self):\n    {owner}.a = 1") == [f"sets {owner}.a"]


@pytest.mark.parametrize(
    "made",
    ["Lane()", "lanes.Lane[int]()", "cls()", "cls.__new__(cls)", "type(self)()", "await Lane()"],
)
def test_an_object_made_in_this_function_may_be_set_up(made: str) -> None:
    assert found(f"async def f(cls, self):\n    x = {made}\n    x.a = 1") == []


def test_an_object_made_around_a_function_may_be_changed_in_it() -> None:
    assert found("def f():\n    x = Lane()\n    def g():\n        x.a = 1") == []


def test_what_another_function_made_or_a_function_returned_may_not() -> None:
    text = "def f():\n    x = Lane()\ndef g(x):\n    x.a = 1\n    y = lane()\n    y.a = 1"
    assert found(text) == ["sets x.a", "sets y.a"]


@pytest.mark.parametrize(
    "field", ["a: int", "a = 1", '__slots__ = ("a",)', "def f(self):\n        self.a = 1"]
)
def test_classes_of_one_file_may_know_each_other(field: str) -> None:
    text = f"class X:\n    {field}\ndef g(x):\n    x.a = x.b = 1"
    assert found(text) == ["sets x.b"]


def test_self_and_elements_of_containers_are_no_concern() -> None:
    assert found("def f(self, x):\n    self.a = 1\n    x.a[0] = 1\n    self.a.b[1] += 1") == []


@pytest.mark.parametrize(
    "definition",
    [
        "c: int",
        "c = 1",
        '__slots__ = ["c"]',
        "def f(self):\n        self.c = 1",
        "def c(self): ...",
        "async def c(self): ...",
        "@cache\n    def c(self): ...",
    ],
)
def test_whatever_a_class_of_this_project_defines_belongs_to_it(definition: str) -> None:
    text = "def f(x):\n    x.c = 1"
    assert found(text) == []
    assert found(text, others=f"class X:\n    {definition}") == ["sets x.c"]


@pytest.mark.parametrize(
    "definition",
    [
        "class X(NamedTuple):\n    c: int",
        "@dataclass(frozen=True)\nclass X:\n    c: int = 0",
        "class X:\n    @property\n    def c(self): ...",
    ],
)
def test_attributes_that_no_assignment_reaches_are_no_concern(definition: str) -> None:
    assert found("def f(x):\n    x.c = 1", others=definition) == []


def test_a_write_around_a_frozen_class_is_found() -> None:
    text = (
        'def f(self, x):\n    object.__setattr__(self, "a", 1)\n    object.__setattr__(x, "a", 1)'
    )
    assert found(text) == ["sets x.…"]


def test_an_attribute_of_a_library_may_be_set_unless_it_is_private() -> None:
    text = "def f(context):\n    context.verify_mode = context._name = 1"
    assert found(text) == ["sets context._name"]


@pytest.mark.parametrize("imported", ["import sys", "from os import sys", "import a.b as sys"])
def test_a_module_or_class_of_a_library_may_be_set_unless_the_name_is_private(
    imported: str,
) -> None:
    text = f"{imported}\nsys.a = sys.path.b = 1\nsetattr(sys, name, 1)\nsys._a = 1"
    assert found(text) == ["sets sys._a"]


@pytest.mark.parametrize(
    "imported",
    ["import proxy.lane", "from proxy import lane as proxy", "from proxy.lane import proxy"],
)
def test_modules_and_classes_of_this_project_may_not_be_set(imported: str) -> None:
    text = f"{imported}\nproxy.limit = 1\nsetattr(proxy, name, 1)"
    assert found(text) == ["sets proxy.limit", "sets proxy.…"]
