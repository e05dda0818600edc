"""Which batches a merge may take, and what its journal holds."""

from __future__ import annotations

import pytest

from thin_client.spark.lake.compaction import Compacted, small, small_folders
from thin_client.spark.lake.merging import (
    Merge,
    last_committed,
    mergeable,
    merged_name,
    query_of,
)

QUERY, OTHER = "3f2b1c4d-0000-4000-8000-00000000000a", "3f2b1c4d-0000-4000-8000-00000000000b"


def batch(number: int, query: str = QUERY) -> str:
    return f"batch={query}-{number:09d}"


def test_only_batches_that_spark_has_committed_are_merged() -> None:
    folders = [batch(1), batch(2), batch(3)]
    assert mergeable(folders, QUERY, 2) == (batch(1), batch(2))


def test_earlier_merges_are_merged_again_and_other_queries_are_left() -> None:
    merged = merged_name(QUERY, "x")
    folders = [merged, merged_name(OTHER, "x"), batch(1, OTHER), batch(4), "_SUCCESS", ".hidden"]
    assert mergeable(folders, QUERY, 9) == (batch(4), merged)


def test_no_batch_has_the_name_of_a_merge() -> None:
    assert merged_name(QUERY, "1") not in {batch(n) for n in range(100)}


def test_a_journal_is_read_as_it_was_written() -> None:
    merge = Merge("date=2026-01-31", (batch(1), batch(2)), merged_name(QUERY, "x"), 7)
    assert Merge.read(merge.text()) == merge


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"day": "x"}'])
def test_a_file_that_is_no_journal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Merge.read(text)


def test_the_last_committed_batch_is_the_greatest_number() -> None:
    assert last_committed(["9", "10", ".10.crc", "2"]) == 10
    assert last_committed([]) is None


def test_a_checkpoint_names_its_query() -> None:
    assert query_of('{"id": "q"}') == "q"
    with pytest.raises(ValueError, match="not the metadata of a query"):
        query_of("{}")


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ([], []),
        ([10], []),
        ([10, 20, 100], ["0", "1"]),
        ([70, 70], ["0", "1"]),  # one of 140
        ([80, 80, 10], []),
        ([80, 300], []),
    ],
)
def test_small_files_are_rewritten_if_they_become_fewer(
    sizes: list[int], chosen: list[str]
) -> None:
    assert small(((str(n), size) for n, size in enumerate(sizes)), 100) == chosen


@pytest.mark.parametrize(
    ("folders", "chosen"),
    [
        ({}, []),
        ({"a": []}, []),
        ({"a": [10]}, []),
        ({"a": [10] * 30}, ["a"]),  # one batch of many tasks
        ({"a": [10], "b": [20], "c": [100]}, ["a", "b"]),
        ({"a": [10, 10], "b": [90, 90, 90]}, ["a"]),
        ({"merged": [80, 80], "a": [10]}, []),
    ],
)
def test_folders_of_small_files_are_rewritten_if_their_files_become_fewer(
    folders: dict[str, list[int]], chosen: list[str]
) -> None:
    assert small_folders(folders, 100) == chosen


def test_results_add_up() -> None:
    assert Compacted(3, 1) + Compacted(2, 1, 4) == Compacted(5, 2, 4)
