from __future__ import annotations

from proxy.core.keys.ids import LeaseId
from proxy.core.leases.verdicts import Nack, Outcome
from proxy.core.pipeline.effects import Effects


def test_each_event_has_effects_of_its_own() -> None:
    first, second = Effects(), Effects()
    first.finished.append((1, Outcome.OK))
    assert second == Effects()


def test_histories_name_outcomes_so() -> None:
    names = ["ok", "filtered", "dlq", "parked", "skipped", "deleted"]
    assert [outcome.value for outcome in Outcome] == names


def test_a_plain_nack_follows_the_retry_intervals_of_its_group() -> None:
    nack = Nack(LeaseId(1))
    assert (nack.retry_after_ms, nack.reject) == (None, False)


def test_untouched_effects_are_empty() -> None:
    effects = Effects()
    assert effects == Effects()
    assert effects.plain
    assert (effects.nacked, effects.skips, effects.missing_keys) == ([], {}, 0)
    assert not effects.plain
    assert effects == Effects(), "accessed lists are still empty"
    effects.fenced.append(7)
    assert effects != Effects()
    assert repr(effects) == "Effects(fenced=[7])"
