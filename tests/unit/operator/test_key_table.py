"""The table of key verbs: the paths, commands and dialogs made of it, and the names it may use."""

from __future__ import annotations

import re
from unittest.mock import MagicMock

import orjson
import pytest

from proxy.admin.keys import GroupVerbSurface, KeySurface
from proxy.cli import groups
from proxy.cli.key import COMMANDS
from proxy.console.key_verbs import key_verbs_js
from proxy.operator.key_models import QueuedKeyBody
from proxy.operator.key_table import GROUP_VERBS, KEY_VERBS, KeyVerb, Reach
from testkit.processes import ROOT

ACTS = (ROOT / "proxy/console/static/key-acts.js").read_text()


def names_in(function: str) -> set[str]:
    """Return the names available to templates: the fields of the object that *function* of the
    console returns.
    """
    body = re.search(rf"function {function}\(.*?return \{{(.*?)\n  \}};", ACTS, re.DOTALL)
    assert body is not None
    return set(re.findall(r"^    (\w+):", body[1], re.MULTILINE))


@pytest.mark.parametrize("verb", KEY_VERBS, ids=lambda verb: verb.name)
def test_a_verb_is_a_path_a_command_and_a_dialog(verb: KeyVerb) -> None:
    paths = [each.path for each in KeySurface(MagicMock()).operations()]
    assert f"/api/groups/{{group}}/topics/{{topic}}/keys/{verb.name}" in paths
    assert verb.name in COMMANDS
    assert f'"name": "{verb.name}"' in key_verbs_js().decode()
    assert (verb.reach is Reach.ALL) == bool(verb.result) == (verb.before is not None)
    if verb.reach is Reach.ALL:
        assert verb.result in verb.answer.model_fields
        assert not issubclass(verb.body, QueuedKeyBody)


def test_a_verb_on_groups_is_a_path_and_a_command_of_reach_all() -> None:
    paths = [each.path for each in GroupVerbSurface(MagicMock()).operations()]
    names = [verb.name for verb, _ in GROUP_VERBS]
    commands = {each.name: each.help for each in groups.app.registered_commands}
    assert paths == [f"/api/groups/{{group}}/{name}" for name in names]
    assert names == ["pause", "resume"]
    for verb, form in GROUP_VERBS:
        assert verb.reach is Reach.ALL
        assert commands[verb.name] == form.help


@pytest.mark.parametrize("verb", KEY_VERBS, ids=lambda verb: verb.name)
def test_templates_use_names_of_the_console(verb: KeyVerb) -> None:
    dialog = verb.dialog
    named = set(re.findall(r"\{(\w+)\}", " ".join(" ".join(line) for line in dialog.lines)))
    assert named <= names_in("before")
    assert set(re.findall(r"\{(\w+)\}", dialog.done)) <= names_in("after")
    assert verb.refusal.format(key="k").startswith("key 'k' ")


def test_the_console_receives_the_verbs_in_display_order() -> None:
    (made,) = re.findall(rb"VERBS = (.*);\n\Z", key_verbs_js(), re.DOTALL)
    names = [each["name"] for each in orjson.loads(made)]
    assert names[:2] == ["pause", "resume"]
    assert sorted(names) == sorted(COMMANDS) == sorted(each.name for each in KEY_VERBS)
    assert len({each.dialog.rank for each in KEY_VERBS}) == len(KEY_VERBS)
