"""Which variants of a test ``--part`` takes."""

from __future__ import annotations

from tests.support.variants import in_part


def test_the_first_slow_variant_and_every_other_test_are_taken() -> None:
    tests = [("a.py::one[0]", False), ("a.py::one[1]", True), ("a.py::one[2]", True)]
    tests += [("a.py::two", True), ("b.py::one[2]", True)]
    assert in_part(tests) == {"a.py::one[0]", "a.py::one[1]", "a.py::two", "b.py::one[2]"}


def test_many_variants_count_by_thirds() -> None:
    assert len(in_part((f"a.py::one[{n}]", False) for n in range(20))) == 20
    assert in_part((f"a.py::one[{n}]", False) for n in range(21)) == {
        f"a.py::one[{n}]" for n in (0, 3, 6, 9, 12, 15, 18)
    }
