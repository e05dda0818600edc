"""Groups at independent nameservers that lose values and fail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import (
    BrokerError,
    NotConnected,
    RemotingError,
    RequestTimeout,
)
from proxy.errors import Refused, SettingsError, Unavailable
from proxy.lane.lanes import Lanes
from proxy.live.group_store import GroupStore
from proxy.live.live_groups import LiveGroups, Source
from proxy.live.store_keys import StoreKeys
from proxy.live.store_reading import StoreReading, read_values
from proxy.live.store_watch import StoreWatch
from proxy.live.stored_group import StoredGroup, group_of, stale, stored_form
from proxy.settings.groups import GroupSettings
from testkit.lanes import group_settings, make_lane


class Nameservers:
    """Values at two nameservers in memory; ``away`` are those that do not answer."""

    def __init__(self) -> None:
        self.nameservers = ("one:1", "two:2")
        self.tables: dict[str, dict[str, str]] = {"one:1": {}, "two:2": {}}
        self.away: set[str] = set()
        self.meanwhile: dict[str, StoredGroup] = {}  # a concurrent writer's put after our next put
        self.puts = 0
        self.lost: set[str] = set()  # those whose next put has an effect, but no answer
        self.deaf: dict[str, RemotingError] = {}  # why puts at a nameserver fail, without an effect

    async def all_of(self, nameserver: str, _namespace: str) -> dict[str, str]:
        self._check(nameserver)
        return dict(self.tables[nameserver])

    async def put(self, nameserver: str, _namespace: str, key: str, value: str) -> None:
        self._check(nameserver)
        if nameserver in self.deaf:
            raise self.deaf[nameserver]
        self.puts += 1
        self.tables[nameserver][key] = value
        for name, theirs in self.meanwhile.items():
            self.tables[nameserver][name] = theirs.encode()
        if nameserver in self.lost:
            self.lost.discard(nameserver)
            raise RequestTimeout(f"no answer of {nameserver}")

    def _check(self, nameserver: str) -> None:
        if nameserver in self.away:
            raise NotConnected(f"{nameserver} does not answer")


def store(at: Nameservers) -> GroupStore:
    return GroupStore(at, KEYS)  # type: ignore[arg-type]


KEYS = StoreKeys([b"k" * 32])
BILLING = group_settings("billing")


async def test_a_group_is_stored_everywhere_and_read_by_others() -> None:
    at = Nameservers()
    written = await store(at).write("billing", BILLING, expect=0, by="me")
    assert written.version == 1
    assert at.tables["one:1"] == at.tables["two:2"] == {"billing": written.encode()}
    other = store(at)
    await other.refresh()
    assert other.known == {"billing": written}
    assert group_of("billing", written.settings or {}) == BILLING


@pytest.mark.parametrize(
    ("expect", "sentence"),
    [
        (0, "group billing has version 2, and none is expected"),
        (1, "group billing has version 2, and version 1 is expected"),
        (None, ""),
        (2, ""),
    ],
)
async def test_a_write_is_refused_unless_the_version_is_as_expected(
    expect: int | None, sentence: str
) -> None:
    at = Nameservers()
    here = store(at)
    await here.write("billing", BILLING, expect=None, by="")
    await here.write("billing", BILLING, expect=1, by="")
    if not sentence:
        assert (await here.write("billing", None, expect=expect, by="")).version == 3
        return
    puts = at.puts
    with pytest.raises(Refused, match=sentence):
        await here.write("billing", None, expect=expect, by="")
    assert at.puts == puts


async def test_a_returning_nameserver_gets_the_missed_values() -> None:
    at = Nameservers()
    at.away = {"two:2"}
    here = store(at)
    written = await here.write("billing", BILLING, expect=None, by="")
    assert list(here.unreachable) == ["two:2"]
    at.away = set()
    await here.refresh()
    assert at.tables["two:2"] == {"billing": written.encode()}
    assert not here.unreachable


async def test_nameservers_that_forget_delete_nothing() -> None:
    """The embedded nameserver without a folder is empty after a restart."""
    at = Nameservers()
    here = store(at)
    written = await here.write("billing", BILLING, expect=None, by="")
    at.tables = {"one:1": {}, "two:2": {}}
    await here.refresh()
    assert here.known == {"billing": written}
    assert at.tables["one:1"] == at.tables["two:2"] == {"billing": written.encode()}


async def test_a_deletion_is_not_undone_by_a_nameserver_that_was_away() -> None:
    at = Nameservers()
    here = store(at)
    await here.write("billing", BILLING, expect=None, by="")
    at.away = {"two:2"}
    await here.write("billing", None, expect=1, by="")
    at.away = set()
    other = store(at)
    await other.refresh()
    assert other.known["billing"].settings is None
    assert at.tables["two:2"] == at.tables["one:1"]
    again = await other.write("billing", BILLING, expect=0, by="")
    assert again.version == 3, "above that of the deletion"


async def test_without_a_nameserver_nothing_is_changed() -> None:
    at = Nameservers()
    at.away = {"one:1", "two:2"}
    with pytest.raises(Unavailable, match="no nameserver answers, so nothing was changed"):
        await store(at).write("billing", BILLING, expect=None, by="")


async def test_a_change_whose_answers_were_lost_is_confirmed() -> None:
    at = Nameservers()
    at.lost, at.away = {"one:1"}, {"two:2"}
    here = store(at)
    written = await here.write("billing", BILLING, expect=0, by="me")
    assert here.known == {"billing": written}


@pytest.mark.parametrize(
    ("why", "sentence"),
    [
        (RequestTimeout("late"), "which may still follow: read it again before you retry; .*late"),
        (NotConnected("closed"), "no nameserver accepted group billing: nothing was changed"),
        (BrokerError(1, "full"), "no nameserver accepted group billing: nothing was changed"),
    ],
)
async def test_a_change_that_no_nameserver_confirms_is_said_to_be_open_if_it_is(
    why: RemotingError, sentence: str
) -> None:
    at = Nameservers()
    at.away, at.deaf = {"two:2"}, {"one:1": why}
    with pytest.raises(Unavailable, match=sentence):
        await store(at).write("billing", BILLING, expect=0, by="me")


async def test_of_two_concurrent_writers_one_is_refused() -> None:
    at = Nameservers()
    theirs = KEYS.sign("billing", StoredGroup(1, {"topics": [{"name": "zzz"}]}, 1 << 60, "zzz"))
    at.meanwhile = {"billing": theirs}
    here = store(at)
    with pytest.raises(Refused, match="was changed concurrently"):
        await here.write("billing", BILLING, expect=0, by="")
    assert here.known["billing"] == theirs


# ---- pure ---------------------------------------------------------------------------------------

names = st.sampled_from("ab")
values = st.builds(
    StoredGroup,
    st.integers(1, 3),
    st.none() | st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2),
    st.integers(0, 3),
)
signed = st.dictionaries(names, values).map(
    lambda groups: {name: KEYS.sign(name, value) for name, value in groups.items()}
)
tables = st.lists(
    signed.map(lambda groups: {name: value.encode() for name, value in groups.items()}), max_size=3
)


def read(some: list[dict[str, str]], known: dict[str, StoredGroup] | None = None) -> StoreReading:
    return read_values(some, known or {}, KEYS)


@given(tables, signed)
def test_in_whatever_order_it_is_read_the_same_counts(
    some: list[dict[str, str]], known: dict[str, StoredGroup]
) -> None:
    reading = read(some, known)
    right = reading.known
    assert not reading.refused
    step = dict(known)
    for table in reversed(some):
        step = read([table], step).known
    assert step == right
    for table in some:
        mended = {**table, **dict(stale(table, right))}
        assert {name: StoredGroup.decode(text) for name, text in mended.items()} == right


@given(values)
def test_a_stored_group_is_read_back(value: StoredGroup) -> None:
    assert StoredGroup.decode(value.encode()) == value


@given(st.text() | st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        st.sampled_from(["version", "settings", "written_ms", "x"]), inner, max_size=4
    ),
).map(str))  # fmt: skip
def test_anything_else_is_no_group(text: str) -> None:
    reading = read([{"a": text}])
    assert not reading.known
    assert "not group settings" in reading.refused["a"]


def test_wrong_settings_are_refused_in_a_sentence_each() -> None:
    with pytest.raises(SettingsError) as error:
        group_of("billing", {"topics": [{"name": "orders", "tag": "x"}], "max_leased_jobs": 0})
    assert [line.partition(":")[0] for line in str(error.value).splitlines()] == [
        "group billing"
    ] * 2
    assert "did you mean tags?" in str(error.value)


def test_only_explicit_settings_are_stored() -> None:
    made = group_of("billing", {"topics": [{"name": "orders", "order_key": "KEY"}]})
    assert stored_form(made) == {"topics": [{"name": "orders", "order_key": "KEY"}]}


# ---- changes of the lanes -------------------------------------------------------------------


async def _nothing(_: Any) -> None:
    return


class Watch:
    """A store that is read, and the lanes that follow it."""

    def __init__(self) -> None:
        self.at = Nameservers()
        self.lanes = Lanes(make_lane, auto_create=True, unserved=self.unserved)
        self.missing: list[str] = []  # settings that this process cannot serve
        self.live = LiveGroups(
            self.lanes,
            changed=lambda _: None,
            give_up=_nothing,
            unservable=lambda _source, _groups: self.missing,
        )
        self.watch = StoreWatch(store(self.at), self.live)

    def unserved(self, group: str) -> str:
        return self.watch.unserved(group)

    async def put(self, name: str, version: int, settings: Any) -> None:
        """Store a value as another writer, then read the store."""
        value = KEYS.sign(name, StoredGroup(version, settings))
        self.at.tables["one:1"][name] = value.encode()
        await self.watch.look()

    def served(self) -> dict[str, GroupSettings]:
        return {lane.name: lane.settings for lane in self.lanes}


async def test_a_wrong_group_of_the_store_keeps_what_it_had_and_holds_up_no_other() -> None:
    here = Watch()
    good, other = stored_form(BILLING), stored_form(group_settings("other"))
    await here.put("billing", 1, good)
    await here.put("billing", 2, {"topics": []})
    await here.put("other", 1, other)
    assert here.served() == {"billing": BILLING, "other": group_settings("other")}
    assert "should not be empty" in here.watch.state.refused["billing"]
    assert here.watch.state.refusals == 1, "told once"
    await here.put("billing", 3, None)
    assert here.watch.state.refused == {}
    assert here.live.groups.keys() == {"other"}


async def test_a_refused_group_is_served_once_it_can_be() -> None:
    here = Watch()
    await here.put("billing", 1, stored_form(BILLING))
    here.missing = ["a secret is missing"]
    await here.put("billing", 2, stored_form(group_settings("billing", max_pull_batch=2)))
    assert here.watch.state.refused == {"billing": "a secret is missing"}
    await here.watch.look()
    assert here.served() == {"billing": BILLING}
    assert here.watch.state.refusals == 1, "told once"
    here.missing = []
    await here.watch.look()
    assert here.served()["billing"].topics[0].max_pull_batch == 2
    assert here.watch.state.refused == {}


async def test_no_client_creates_a_group_before_the_store_was_read() -> None:
    """With a group's default order key instead of the stored one, its messages would be in another
    order.
    """
    here = Watch()
    stored = stored_form(group_settings("billing", order_key="$.customer"))
    value = KEYS.sign("billing", StoredGroup(1, stored))
    here.at.tables["one:1"]["billing"] = value.encode()
    here.at.away = {"one:1", "two:2"}
    for _ in range(2):
        with pytest.raises(Unavailable, match="'billing' is not served here yet: this proxy has"):
            here.lanes.serving("billing", ["orders"], "client")
        await here.watch.look()
    with pytest.raises(Unavailable, match="since it started: one:1: one:1 does not answer; two:2"):
        here.lanes.require("other", ["orders"])
    assert here.served() == {}
    here.at.away = {"two:2"}
    await here.watch.look()
    assert here.lanes.serving("billing", ["orders"], "client").settings.topics[0].order_key
    assert str(here.served()["billing"].topics[0].order_key) == "$.customer"
    assert here.lanes.require("other", ["orders"]).auto_created, "it is not in the store"


async def test_no_client_creates_a_stored_group_whose_settings_are_refused() -> None:
    here = Watch()
    await here.put("billing", 1, {"topics": []})
    with pytest.raises(Unavailable, match=r"are refused: .*should not be empty"):
        here.lanes.serving("billing", ["orders"], "client")
    await here.put("billing", 2, None)
    assert here.lanes.serving("billing", ["orders"], "client").auto_created


async def test_a_group_that_is_served_is_not_held_up_by_the_store() -> None:
    here = Watch()
    here.live.give(Source.FILE, [BILLING])
    here.at.away = {"one:1", "two:2"}
    await here.watch.look()
    assert here.lanes.serving("billing", ["orders"], "client").settings == BILLING
