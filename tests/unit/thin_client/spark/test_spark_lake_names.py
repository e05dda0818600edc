"""Names of a table's files and batches, and what follows from them."""

from __future__ import annotations

import pytest

from thin_client.spark.lake.names import (
    Partition,
    attempt_name,
    exposes,
    files_for,
    folder_of,
    in_pairs,
    is_recorded,
    is_small,
    local_path,
    property_of,
    worth_merging,
)


@pytest.mark.parametrize("topic", ["orders", "%RETRY%billing", "a|b", "a_b-c"])
def test_a_folder_tells_its_topic_and_day(topic: str) -> None:
    folder = folder_of(topic)
    assert not set(folder) & set("%|/")
    path = f"archived_date=2026-01-31/archived_topic={folder}/part-0.parquet"
    assert Partition.of(path) == Partition("2026-01-31", topic)


def test_a_file_outside_the_folders_of_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="no folder archived_topic"):
        Partition.of("archived_date=2026-01-31/part-0.parquet")


@pytest.mark.parametrize(
    ("path", "exposed"),
    [
        ("/lake/orders/checkpoint", True),
        ("/lake/orders/state/_checkpoint/", True),
        ("/lake/orders/", True),
        ("/lake/orders/_checkpoint", False),
        ("/lake/orders/.state/orders", False),
        ("/lake/orders-checkpoint", False),
        ("/lake/checkpoints/orders", False),
    ],
)
def test_a_folder_of_the_archive_is_safe_under_a_hidden_name(path: str, exposed: bool) -> None:
    assert exposes("/lake/orders", path) == exposed
    assert exposes("/lake/orders/", path) == exposed


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/out/a#1?x=%41/report.json", "/out/a#1?x=%41/report.json"),
        ("file:///out/a#1", "/out/a#1"),
        ("file:/out/a?1", "/out/a?1"),
        ("out/a#b:c", "out/a#b:c"),
        ("s3a://bucket/a#1", None),
        ("hdfs:/out", None),
    ],
)
def test_a_local_path_may_have_each_character(path: str, local: str | None) -> None:
    assert local_path(path) == local


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
def test_parts_are_joined_in_their_order_without_depth(count: int) -> None:
    def joined(one: tuple[list[int], int], other: tuple[list[int], int]) -> tuple[list[int], int]:
        return one[0] + other[0], 1 + max(one[1], other[1])

    items, depth = in_pairs([([n], 0) for n in range(count)], joined)
    assert (items, depth) == (list(range(count)), (count - 1).bit_length())


def test_two_attempts_at_a_batch_have_folders_of_their_own() -> None:
    names = {attempt_name("q", 7, unique) for unique in ("a", "b")}
    assert names == {"batch-q-000000007-a", "batch-q-000000007-b"}


@pytest.mark.parametrize(
    ("last", "number", "recorded"),
    [(None, 0, False), (0, 0, True), ("0", 0, True), ("9", 10, False), (10, 9, True)],
)
def test_a_batch_is_recorded_if_a_later_one_is(
    last: int | str | None, number: int, recorded: bool
) -> None:
    assert is_recorded(last, number) == recorded


def test_queries_record_their_batches_apart() -> None:
    assert property_of("a") != property_of("b")


@pytest.mark.parametrize(("size", "files"), [(0, 1), (10, 1), (149, 1), (151, 2), (1000, 10)])
def test_files_are_about_as_large_as_wanted(size: int, files: int) -> None:
    assert files_for(size, 100) == files


@pytest.mark.parametrize(
    ("sizes", "worth"),
    [([], False), ([5], False), ([5, 5], True), ([90, 90], False), ([90, 90, 10], True)],
)
def test_files_are_merged_only_if_they_become_fewer(sizes: list[int], worth: bool) -> None:
    assert worth_merging(sizes, 100) == worth


def test_files_near_the_wanted_size_stay() -> None:
    assert [is_small(size, 100) for size in (10, 74, 75, 100, 300)] == [True, True, *[False] * 3]
