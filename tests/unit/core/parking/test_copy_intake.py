"""From parked copies to jobs of a twin: valid copies, and their keys."""

from __future__ import annotations

from broker_core.names import Topic
from broker_core.remoting.message import StoredMessage
from proxy.core.dead_letters.copies import ORIGIN_TOPIC, topic_in_life
from proxy.core.jobs.chains import Job
from proxy.core.keys.ids import Epoch
from proxy.core.parking.parked_copy import ORIGIN_EPOCH, ORIGIN_OFFSET
from proxy.core.parking.parking_pipeline import ParkingPipeline
from proxy.core.parking.twin_pipeline import TwinPipeline
from proxy.core.records.parked_key import ParkedKey
from testkit.messages import TOPIC, message
from testkit.pipelines import FOR_EVER_NS, Budgets, queue, rules

EPOCH = 5
#: The life of the topic, and one that it continues up to an offset.
LIFE, FORMER, SHARED_BELOW = 30, 20, 4


def twin_of(**parked: ParkedKey) -> TwinPipeline:
    """Return the twin of a queue in which these keys are parked."""
    budgets = Budgets()
    origin = ParkingPipeline(
        queue=queue(),
        epoch=Epoch(EPOCH),
        period=1,
        rules=rules(),
        start_offset=0,
        committed=0,
        trusted_until_ns=FOR_EVER_NS,
        memory=budgets.memory,
        leases_of_group=budgets.leases,
        life=LIFE,
        former={FORMER: SHARED_BELOW},
    )
    origin.found_parked({key.encode(): each for key, each in parked.items()})
    return TwinPipeline(
        twin_of=origin,
        must_read=0,
        queue=queue(topic=Topic("%PARK%1")),
        epoch=Epoch(1),
        period=1,
        rules=rules(),
        start_offset=0,
        committed=0,
        trusted_until_ns=FOR_EVER_NS,
        memory=budgets.memory,
        leases_of_group=budgets.leases,
    )


def copy(
    offset: int, key: str, *, of: int, epoch: int = EPOCH, life: int | None = LIFE
) -> StoredMessage:
    """Return the copy at *offset* of the twin, of the message at *of*."""
    topic = topic_in_life(TOPIC, life)
    properties = {ORIGIN_TOPIC: topic, ORIGIN_OFFSET: str(of), ORIGIN_EPOCH: str(epoch)}
    return message(offset, key=key, body=b"xyz", **properties)


def read(twin: TwinPipeline, *copies: StoredMessage) -> list[int]:
    """Read *copies*; return the offsets of the valid ones of key a."""
    twin.on_messages(copies, next_offset=len(copies))
    assert twin.position == len(copies)
    return list(twin.jobs.by_key.spilled_offsets(b"a"))


def test_copies_of_parked_keys_count_and_others_are_passed_over() -> None:
    twin = twin_of(a=ParkedKey(0, EPOCH))

    assert read(twin, copy(0, "a", of=3), copy(1, "b", of=4), copy(2, "a", of=5)) == [0, 2]
    assert twin.jobs.unfinished == 2
    assert twin.parked[b"a"] == ParkedKey(6, EPOCH)


def test_a_copy_of_the_same_message_or_an_older_one_is_a_repeat() -> None:
    twin = twin_of(a=ParkedKey(0, EPOCH))

    assert read(twin, *(copy(at, "a", of=of) for at, of in enumerate((3, 3, 2, 4)))) == [0, 3]


def test_copies_of_before_the_key_was_parked_have_ended() -> None:
    twin = twin_of(a=ParkedKey(4, EPOCH))

    copies = (copy(0, "a", of=5, epoch=EPOCH - 1), copy(1, "a", of=3), copy(2, "a", of=4))
    assert read(twin, *copies) == [2]


def test_copies_of_a_former_life_of_the_topic_do_not_count() -> None:
    """Their epochs and offsets may be above those of copies that do."""
    twin = twin_of(a=ParkedKey(0, EPOCH))

    former = copy(0, "a", of=9, epoch=EPOCH + 3, life=10)
    assert read(twin, former, copy(1, "a", of=0), copy(2, "a", of=1)) == [1, 2]


def test_copies_of_a_life_that_is_continued_count_up_to_its_end() -> None:
    twin = twin_of(a=ParkedKey(0, EPOCH))

    below, above = (
        copy(at, "a", of=of, life=FORMER) for at, of in enumerate((SHARED_BELOW - 1, SHARED_BELOW))
    )
    assert read(twin, below, above, copy(2, "a", of=SHARED_BELOW)) == [0, 2]


def test_copies_that_name_no_life_count_in_any() -> None:
    """Earlier versions made them, and all at brokers without lives."""
    twin = twin_of(a=ParkedKey(0, EPOCH))

    assert read(twin, copy(0, "a", of=3, life=None)) == [0]


def test_other_messages_than_copies_are_skipped() -> None:
    twin = twin_of(a=ParkedKey(0, EPOCH))

    assert read(twin, message(0, key="a")) == []
    assert (twin.jobs.unfinished, dict(twin.parked)) == (0, {})


def test_a_redriven_copy_is_read_as_the_message_that_it_is_of() -> None:
    twin = twin_of(a=ParkedKey(0, EPOCH))
    first = copy(0, "a", of=3)
    read(twin, first)
    (refill,) = twin.redrive(b"a").refills
    twin.refilled(refill, [first])

    job = twin.head(b"a")
    assert job is not None
    assert job.message is not None
    assert ORIGIN_OFFSET not in job.message.properties
    assert (job.offset, twin.intake.origin_offset(Job(0, b"a"), first)) == (0, 3)


def test_reading_continues_without_demand() -> None:
    twin = twin_of(a=ParkedKey(0, EPOCH))

    assert twin.room() == twin.room(demand=True) == rules().max_jobs
