"""Answers with stored records; B1 to B4 are the rules in the module's docstring."""

from __future__ import annotations

from proxy.core.bulk.answer import MAX_READ_BYTES, MAX_READ_MESSAGES, BulkAnswer, Read

MIB = 1024 * 1024


def give(answer: BulkAnswer, read: Read, size: int, *, count: int = 1, end: int = 1000) -> None:
    """Complete *read* with *count* messages of *size* bytes in all; the queue ends at *end*."""
    answer.on_read(read, bytes(size), next_offset=read.offset + count, end_offset=end)


def size_of(answer: BulkAnswer) -> int:
    """Return the bytes of the records in *answer*."""
    return sum(len(chunk) for part in answer.parts for chunk in part.chunks)


def test_what_was_read_counts_also_where_less_is_sent() -> None:
    answer = BulkAnswer([0], max_bytes=MIB)
    read = answer.next_read()
    assert read is not None
    answer.on_read(read, bytes(10), next_offset=1, end_offset=2, read_bytes=1000)
    assert (size_of(answer), answer.read_bytes) == (10, 1000)
    assert answer.next_read() is not None


def test_reads_of_a_queue_follow_each_other_until_its_end() -> None:
    answer = BulkAnswer([5], max_bytes=4 * MIB)
    assert not answer.has_news
    first = answer.next_read()
    assert first == Read(0, 5, MAX_READ_MESSAGES, MAX_READ_BYTES)
    assert answer.next_read() is None  # the queue's next read begins at the end of this one
    give(answer, first, 100, count=3, end=9)
    second = answer.next_read()
    assert second is not None
    assert second.offset == 8
    give(answer, second, 50, count=1, end=9)
    assert answer.next_read() is None
    (part,) = answer.parts
    assert (part.next_offset, [len(chunk) for chunk in part.chunks]) == (9, [100, 50])
    assert (answer.has_news, size_of(answer)) == (True, 150)


def test_b1_a_jump_is_reported_by_an_answer_without_records_of_that_queue() -> None:
    answer = BulkAnswer([5], max_bytes=4 * MIB)
    read = answer.next_read()
    assert read is not None
    give(answer, read, 100, count=3)
    read = answer.next_read()
    assert read is not None
    answer.on_read(read, b"", next_offset=500, end_offset=1000)
    assert answer.next_read() is None
    assert answer.parts[0].next_offset == 8

    again = BulkAnswer([8], max_bytes=4 * MIB)
    read = again.next_read()
    assert read is not None
    again.on_read(read, b"", next_offset=500, end_offset=1000)
    assert again.next_read() is None
    assert (again.parts[0].next_offset, again.parts[0].chunks, again.has_news) == (500, [], True)


def test_b4_records_of_another_life_of_the_topic_are_left_to_the_next_answer() -> None:
    answer = BulkAnswer([5], max_bytes=4 * MIB)
    first = answer.next_read()
    assert first is not None
    answer.on_read(first, bytes(10), next_offset=7, end_offset=9, life=3)
    second = answer.next_read()
    assert second is not None
    answer.on_read(second, bytes(20), next_offset=8, end_offset=9, life=4)
    assert answer.next_read() is None
    (part,) = answer.parts
    assert (part.next_offset, part.life, part.chunks) == (7, 3, [bytes(10)])


def test_b2_reads_stop_at_the_limit_of_bytes_and_one_may_overshoot() -> None:
    answer = BulkAnswer([0, 0, 0], max_bytes=100_000)
    reads = [answer.next_read() for _ in range(3)]
    assert [each and each.max_bytes for each in reads] == [65_536, 34_464, None]
    one, two = reads[0], reads[1]
    assert one is not None
    assert two is not None
    give(answer, one, 300_000)  # one message that is larger than all
    give(answer, two, 300_000)  # another one: left to the next answer
    assert answer.next_read() is None
    assert [part.next_offset for part in answer.parts] == [1, 0, 0]
    assert size_of(answer) == 300_000


def test_b2_an_answer_that_is_nearly_full_is_full() -> None:
    """A read of the rest would return too little, or a message that does not fit."""
    for left, more in ((MIB // 16, False), (MIB // 16 + 1, True)):
        answer = BulkAnswer([0], max_bytes=MIB)
        read = answer.next_read()
        assert read is not None
        give(answer, read, MIB - left, count=9)
        assert (answer.next_read() is not None) is more


def test_b2_bytes_that_a_read_does_not_use_are_free_for_others() -> None:
    answer = BulkAnswer([0, 0], max_bytes=70_000)
    one, two = answer.next_read(), answer.next_read()
    assert one is not None
    assert two is not None
    assert two.max_bytes == 70_000 - 65_536
    assert answer.next_read() is None
    give(answer, one, 10_000, count=1, end=1)
    give(answer, two, 4_000)
    more = answer.next_read()
    assert more is not None
    assert (more.place, more.offset, more.max_bytes) == (1, 1, 56_000)


def test_b3_queues_are_read_in_turn_an_even_share_at_a_time() -> None:
    answer = BulkAnswer([0] * 8, max_bytes=MIB)
    order = []
    while (read := answer.next_read()) is not None:
        assert read.max_bytes == MIB // 8
        order.append(read.place)
        give(answer, read, read.max_bytes)
    assert order == list(range(8))
    assert size_of(answer) == MIB


def test_messages_of_each_queue_are_bounded() -> None:
    answer = BulkAnswer([10, 20], max_bytes=MIB, max_messages=5)
    one = answer.next_read()
    assert one is not None
    assert one.max_messages == 5
    give(answer, one, 100, count=3)
    two = answer.next_read()
    assert two is not None
    give(answer, two, 100, count=5)
    rest = answer.next_read()
    assert rest is not None
    assert (rest.place, rest.offset, rest.max_messages) == (0, 13, 2)
    give(answer, rest, 100, count=2)
    assert answer.next_read() is None
    assert [part.next_offset for part in answer.parts] == [15, 25]


def test_a_failed_read_ends_its_queue_and_gives_its_bytes_back() -> None:
    answer = BulkAnswer([0, 0], max_bytes=65_536)
    failed = answer.next_read()
    assert failed is not None
    assert answer.next_read() is None
    answer.on_failure(failed)
    other = answer.next_read()
    assert other is not None
    assert (other.place, other.max_bytes) == (1, 65_536)
    assert not answer.has_news


def test_all_queues_can_be_waited_for_at_once() -> None:
    answer = BulkAnswer([3, 4], max_bytes=100_000)
    for _ in range(2):
        read = answer.next_read()
        assert read is not None
        answer.on_read(read, b"", next_offset=read.offset, end_offset=read.offset)
    assert answer.next_read() is None
    waiting = answer.reads_again()
    assert [each.offset for each in waiting] == [3, 4]
    give(answer, waiting[1], 10, end=5)
    assert [part.next_offset for part in answer.parts] == [3, 5]


def test_no_queues_make_an_empty_answer() -> None:
    answer = BulkAnswer([], max_bytes=1024)
    assert (answer.next_read(), answer.has_news, answer.reads_again()) == (None, False, [])
