"""Preconditions of documented verbs, and local names for the documents' examples.

A document says ``order-17``, ``broker-a_0@17`` or ``10.0.0.7:9714``; a stage creates such a key,
dead letter or proxy and returns the words that name it here. Each key is a new one, so a page may
list its commands in any order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

from testkit.certificates import make_certificates
from testkit.processes import wait_until
from tests.integration.documents.doc_site import CLIENT, DocSite
from tests.support.cli_words import Typed
from tests.support.histories import Story

#: Documented words and their local replacements.
Words = dict[str, str]
#: Messages that a stage sends, so that each queue has some.
_SENT = 40
_WITHIN_S = 30


def staged(site: DocSite, command: Typed) -> Words:
    """Prepare the command and return the words to replace."""
    stage = STAGES.get(command.verb)
    return {} if stage is None else stage(site, command.parameters)


def replaced(text: str, words: Mapping[str, str]) -> str:
    """Replace all *words* that stand alone in *text*, longer ones first."""
    if not words:
        return text
    longest = sorted(words, key=len, reverse=True)
    pattern = "|".join(re.escape(word) for word in longest)
    return re.sub(rf"(?<![\w.-])(?:{pattern})(?![\w-])", lambda found: words[found[0]], text)


# ---- groups --------------------------------------------------------------------------------------


def _group(site: DocSite, said: Mapping[str, Any]) -> Words:
    if said.get("group"):
        site.group(said["group"])
    return {}


def _own_group(site: DocSite, said: Mapping[str, Any]) -> Words:
    """Use a group that no other command of the page needs unchanged, with a topic of its own."""
    number = next(site.numbers)
    group, topic = f"{said['group']}-{number}", f"orders-{number}"
    site.group(group, topic=topic)
    return {said["group"]: group, "orders": topic}


def _paused_group(site: DocSite, said: Mapping[str, Any]) -> Words:
    words = _own_group(site, said)
    site.change(f"/api/groups/{words[said['group']]}/pause")
    return words


def _new_group(site: DocSite, said: Mapping[str, Any]) -> Words:
    """Use a store without a group of that name."""
    if site.has_group(said["group"]):
        site.change(f"/api/groups/{said['group']}", method="DELETE")
    return {}


def _stored_group(site: DocSite, said: Mapping[str, Any]) -> Words:
    """Keep the group as the page created it, without clients."""
    if not site.has_group(said["group"]):
        topics = [{"name": "orders", "order_key": "KEY"}]
        path = f"/api/groups/{said['group']}"
        site.change(path, method="PUT", settings={"topics": topics})
    return {}


def _stored_groups(site: DocSite, said: Mapping[str, Any]) -> Words:
    for group in said.get("group") or ():
        _stored_group(site, {"group": group})
    return {}


def _group_with_messages(site: DocSite, said: Mapping[str, Any]) -> Words:
    site.group(said["group"])
    for number in range(20):
        site.send("orders", f"order-{number}", copies=1 + number % 3)
    return {}


def _messages(site: DocSite, said: Mapping[str, Any]) -> Words:
    """Send a message for the only client of its group."""
    number = next(site.numbers)
    topics = list(said.get("topics") or ["orders"])
    words = {topic: f"{topic}-{number}" for topic in topics}
    group = f"{said['group']}-{number}"
    settings = {"topics": [{"name": name} for name in words.values()]}
    site.change(f"/api/groups/{group}", method="PUT", settings=settings)
    for name in words.values():
        site.send(name, "order-17")
    return {said["group"]: group, **words}


# ---- keys ----------------------------------------------------------------------------------------


def _state(site: DocSite, group: str, key: str) -> dict[str, Any]:
    asked = urlencode({"key": key})
    rows = site.look(f"/api/groups/{group}/topics/orders/keys/show?{asked}")
    return dict(rows[0]) if rows else {"state": None}


def _has(site: DocSite, group: str, key: str, *states: str) -> dict[str, Any]:
    """Return the proxy's view of a key, once it is in one of *states*."""
    wait_until(
        lambda: _state(site, group, key)["state"] in states,
        within_s=_WITHIN_S,
        what=f"{key} is {states}; it is {_state(site, group, key)}",
    )
    return _state(site, group, key)


def _failed(site: DocSite, said: Mapping[str, Any]) -> Words:
    """Create a key whose first message failed, with a second one behind it."""
    group, key = said["group"], f"{said['key']}-{next(site.numbers)}"
    site.group(group)
    site.send("orders", key, "fail", copies=2)
    state = _has(site, group, key, "retrying")
    offset = said.get("offset")
    return {said["key"]: key} | ({} if offset is None else {str(offset): str(state["offset"])})


def _act(site: DocSite, said: Mapping[str, Any], words: Words, verb: str, **more: Any) -> None:
    path = f"/api/groups/{said['group']}/topics/orders/keys/{verb}"
    site.change(path, key=words[said["key"]], **more)


def _paused(site: DocSite, said: Mapping[str, Any]) -> Words:
    words = _failed(site, said)
    _act(site, said, words, "pause")
    return words


def _parked(site: DocSite, said: Mapping[str, Any]) -> Words:
    words = _failed(site, said)
    _act(site, said, words, "park")
    wait_until(
        lambda: _state(site, said["group"], words[said["key"]]).get("copies") == 2,
        within_s=_WITHIN_S,
        what="both messages are copied",
    )
    return words


def _parked_one(site: DocSite, said: Mapping[str, Any]) -> Words:
    """Create parked keys, unless other commands of the page did."""
    return {} if said["every"] else _parked(site, said)


def _redriven(site: DocSite, said: Mapping[str, Any]) -> Words:
    words = _parked(site, said)
    _act(site, said, words, "redrive")
    return words


def _audited(site: DocSite, _: Mapping[str, Any]) -> Words:
    """Make one change, so that the audit topic has a record."""
    _paused(site, {"group": "billing", "key": "order-17"})
    return {}


# ---- leases, dead letters, offsets, proxies ------------------------------------------------------


def _leased(site: DocSite, said: Mapping[str, Any]) -> Words:
    key = f"{said.get('key') or 'order-17'}-{next(site.numbers)}"
    site.group(said["group"])
    site.send("orders", key, "hold")
    path = f"/api/groups/{said['group']}/leases?{urlencode({'key': key, 'client': CLIENT})}"
    wait_until(lambda: site.look(path)["live"] == 1, within_s=_WITHIN_S, what=f"{key} is leased")
    (lease,) = site.look(path)["leases"]
    words = {"lease": lease["lease"], "key": key, "client": CLIENT}
    return {said[name]: word for name, word in words.items() if said.get(name)}


def _died(site: DocSite, said: Mapping[str, Any]) -> Words:
    key = f"{said.get('key') or 'order-17'}-{next(site.numbers)}"
    site.group(said["group"])
    site.send("orders", key, "reject", copies=3)
    path = f"/api/groups/{said['group']}/dead-letters?{urlencode({'key': key})}"

    def places() -> list[str]:
        try:
            return [each["dead_letter"] for each in site.look(path)["dead_letters"]]
        except HTTPError:  # the group has had none yet
            return []

    wait_until(lambda: len(places()) == 3, within_s=_WITHIN_S, what=f"messages of {key} died")
    place, *_ = places()
    words = {"dead_letter": place, "key": key}
    return {said[name]: word for name, word in words.items() if said.get(name)}


def _dead_letters_redriven(site: DocSite, said: Mapping[str, Any]) -> Words:
    words = _died(site, said)
    place = f"/api/groups/{said['group']}/dead-letters"
    wait_until(
        lambda: (site.look(place)["redrive"] or {}).get("state") != "running",
        within_s=_WITHIN_S,
        what="the redrive of before is through",
    )
    site.change(f"{place}/redrive", rate=0.1)
    return words


def _committed(site: DocSite, said: Mapping[str, Any]) -> Words:
    """Use a group that has finished all messages, some of them in the command's queue."""
    words = _own_group(site, said)
    group, topic = words[said["group"]], words["orders"]
    (queue, *_) = said.get("queue") or ("broker-a_0",)

    def rows() -> list[dict[str, Any]]:
        return list(site.look(f"/api/groups/{group}/offsets")["queues"])

    def base() -> int:
        return sum(row["base"] or 0 for row in rows() if row["queue"] == queue)

    def finished() -> bool:
        found = rows()
        done = sum(row["base"] or 0 for row in found)
        return done >= _SENT and all(row["base"] == row["end"] for row in found)

    for number in range(_SENT):
        site.send(topic, f"order-{number}")
    wait_until(finished, within_s=_WITHIN_S, what=f"all messages of {group} are finished")
    assert base() >= 2, f"queue {queue} has {base()} messages: the command needs 2"
    for expected in said.get("expect") or ():
        words[str(expected)] = str(base())
    if said.get("to_offset") is not None:
        words[str(said["to_offset"])] = str(base() - 1)
    return words


def _second_proxy(site: DocSite, said: Mapping[str, Any]) -> Words:
    """Start two proxies that share the queues of a group; the first owns the command's queue."""
    group = said.get("group") or "billing"
    site.group(group)
    http = site.second_proxy(group)["http"]
    wait_until(
        lambda: 0 < len(site.owned(group, "orders")) < 8,
        within_s=_WITHIN_S,
        what=f"both proxies own queues; the first has {site.owned(group, 'orders')}",
    )
    queue, *_ = sorted(site.owned(group, "orders"))
    return {said["node"]: http} | ({said["queue"]: queue} if said.get("queue") else {})


def _drained_proxy(site: DocSite, said: Mapping[str, Any]) -> Words:
    """Use the second proxy, drained by the page or not."""
    site.group("billing")
    return {said["node"]: site.second_proxy("billing")["http"]}


def _history(site: DocSite, said: Mapping[str, Any]) -> Words:
    """Write a valid history into each folder that the page names."""
    story = Story()
    for offset in range(20):
        story.sent(offset)
    for folder in said["files"]:
        (site.folder / folder).mkdir(exist_ok=True)
        story.own(1).through(*range(20)).commit(20).write(site.folder / folder / "run.jsonl")
    return {}


def _certificates(site: DocSite, said: Mapping[str, Any]) -> Words:
    """Create files for the names of certificates and keys, if there are any."""
    names = ("tls_certificate", "tls_key", "tls_client_ca")
    if not any(said.get(name) for name in names):
        return {}
    made = make_certificates(site.folder)
    files = dict(zip(names, (made.server, made.server_key, made.ca), strict=True))
    return {str(said[name]): str(file) for name, file in files.items() if said.get(name)}


STAGES: dict[str, Callable[[DocSite, Mapping[str, Any]], Words]] = {
    "nameserver": _certificates,
    "lag": _group,
    "top": _group,
    "doctor": _group,
    "groups create": _new_group,
    "groups update": _stored_group,
    "groups describe": _stored_group,
    "groups delete": _stored_group,
    "groups sign": _stored_groups,
    "groups pause": _own_group,
    "groups resume": _paused_group,
    "consume": _messages,
    "keys top": _group,
    "keys hot": _group,
    "keys blocked": _group,
    "keys paused": _group,
    "key parked": _group,
    "audit tail": _audited,
    "key show": _failed,
    "key history": _failed,
    "key pause": _failed,
    "key resume": _paused,
    "key note": _paused,
    "key skip": _failed,
    "key retry": _failed,
    "key park": _failed,
    "key redrive": _parked_one,
    "key stop": _redriven,
    "dead-letters ls": _died,
    "dead-letters show": _died,
    "dead-letters export": _died,
    "dead-letters redrive": _died,
    "dead-letters stop": _dead_letters_redriven,
    "leases ls": _leased,
    "leases show": _leased,
    "leases extend": _leased,
    "leases revoke": _leased,
    "offsets show": _group,
    "offsets reset": _committed,
    "owners drain": _second_proxy,
    "owners resume": _drained_proxy,
    "owners handoff": _second_proxy,
    "order-key get": _group,
    "order-key lint": _group_with_messages,
    "order-key simulate": _group_with_messages,
    "order-key rollout": _group_with_messages,
    "verify-history": _history,
}
