"""Names of groups, including the names derived from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from broker_core.names import Group, Topic, check_name
from proxy.core.keys.group_names import MAX_GROUP_CHARS, check_group
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.record import ownership_topic
from proxy.upstream.dead_letters.copier import dead_letter_topic
from proxy.upstream.dead_letters.redrive_run import progress_group
from testkit.lanes import group_settings

_NAMES = st.text("abcXYZ019_-|%", min_size=1, max_size=130)


@given(_NAMES, _NAMES)
def test_of_a_group_that_is_taken_all_derived_names_are_legal(name: str, topic: str) -> None:
    try:
        group, consumed = Group(check_group(name)), Topic(check_name("topic", topic))
    except ValueError:
        return
    derived = dead_letter_topic(group), parked_topic(group, consumed)
    for each in (*derived, ownership_topic(group, consumed)):
        check_name("topic", each)
    check_name("group", progress_group(group))


@pytest.mark.parametrize("length", range(MAX_GROUP_CHARS + 1, 128))
def test_a_name_without_room_for_its_dead_letters_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"{length} characters: at most 122 are allowed"):
        check_group("g" * length)
    with pytest.raises(ValidationError, match="dead-letter topic is %DLQ% followed by that name"):
        group_settings("g" * length)
    check_group("g" * MAX_GROUP_CHARS)


@pytest.mark.parametrize("name", ["%DLQ%billing", "%RETRY%billing", "%", "%%x"])
def test_names_of_brokers_and_gateways_are_no_groups(name: str) -> None:
    """The redrive of billing's dead letters keeps its progress in the first one."""
    with pytest.raises(ValueError, match="begins with '%', which is reserved for brokers"):
        check_group(name)
