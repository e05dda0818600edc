"""Signed requests and the rights of accounts, without a broker."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker_core.access.file import AccessFile
from broker_core.access.needs import ADMIN_CODES, Need, Right
from broker_core.access.rules import AccessRules, Addresses
from broker_core.errors import BrokerError, InvalidCommand, StoreError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.bodies import ConsumerData, Heartbeat, LockBatch, Subscription
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.signing import Credentials, is_signed, signature_of
from testkit.processes import ROOT as ROOT_FOLDER

SHOP = Credentials("shop-account", "shop-secret")
ROOT = Credentials("root-account", "root-secret")
RULES = """
globalWhiteRemoteAddresses: [10.10.*.*]
accounts:
- accessKey: shop-account
  secretKey: shop-secret
  whiteRemoteAddress: 192.168.0.7
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [orders=PUB|SUB, prices=SUB, secret=DENY]
  groupPerms: [audit=DENY]
- {accessKey: root-account, secretKey: root-secret, admin: true}
"""
ELSEWHERE = "172.16.0.1:5000"


def rules(text: str = RULES) -> AccessRules:
    return AccessRules.from_fields(yaml.safe_load(text))


def request(
    code: int, *, by: Credentials | None = SHOP, body: bytes = b"", **ext: str
) -> RemotingCommand:
    signed = ext if by is None else by.signed(ext, body)
    return RemotingCommand(code, ext=signed, body=body)


def refusal(asked: RemotingCommand, peer: str = ELSEWHERE) -> str | None:
    try:
        rules().check(asked, peer)
    except BrokerError as error:
        return error.remark if error.code == ResponseCode.NO_PERMISSION else f"code {error.code}"
    return None


def test_a_signature_covers_the_values_by_name_and_the_body() -> None:
    ext = {"b": "2", "a": "1", "Signature": "old", "_UNIQUE_KEY_QUERY": "true", "AccessKey": "k"}
    mac = hmac.new(b"secret", b"k" + b"1" + b"2" + b"body", hashlib.sha1)
    assert signature_of(ext, b"body", secret="secret") == b64encode(mac.digest()).decode()
    signed = Credentials("k", "secret").signed({"a": "1", "b": "2"}, b"body")
    assert is_signed(signed, b"body", secret="secret")
    for wrong in ({**signed, "a": "3"}, {**signed, "Signature": "é"}, {"AccessKey": "k"}):
        assert not is_signed(wrong, b"body", secret="secret")
    assert not is_signed(signed, b"other", secret="secret")
    assert "secret" not in repr(Credentials("k", "secret"))


SEND, PULL, COMMIT = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.PULL_MESSAGE,
    RequestCode.UPDATE_CONSUMER_OFFSET,
)


def heartbeat(group: str, *topics: str) -> bytes:
    wanted = tuple(Subscription.of_tags(Topic(each), "*") for each in topics)
    consumer = ConsumerData(group=Group(group), subscriptions=wanted)
    return Heartbeat(client_id="one", consumers=(consumer,)).to_json()


def locks(group: str, topic: str) -> bytes:
    queue = QueueName(Topic(topic), "broker-a", 0)
    return LockBatch(group=Group(group), client_id="one", queues=frozenset({queue})).to_json()


@pytest.mark.parametrize(
    ("code", "ext", "body", "lacks"),
    [
        (SEND, {"b": "orders"}, b"x", None),
        (SEND, {"b": "prices"}, b"x", "topic prices: accessKey=shop-account needs PUB"),
        (SEND, {"b": "others"}, b"x", "topic others"),
        (SEND, {"b": "%RETRY%billing"}, b"x", None),
        (SEND, {"b": "%RETRY%audit"}, b"x", "group audit"),
        (SEND, {"b": "RMQ_SYS_TRACE_TOPIC"}, b"x", None),
        (RequestCode.SEND_BATCH_MESSAGE, {"b": "prices"}, b"x", "topic prices"),
        (PULL, {"topic": "prices", "consumerGroup": "billing"}, b"", None),
        (PULL, {"topic": "secret", "consumerGroup": "billing"}, b"", "topic secret"),
        (PULL, {"topic": "prices", "consumerGroup": "audit"}, b"", "group audit"),
        (RequestCode.LITE_PULL_MESSAGE, {"topic": "secret"}, b"", "topic secret"),
        (COMMIT, {"topic": "orders", "consumerGroup": "audit"}, b"", "group audit"),
        (RequestCode.HEART_BEAT, {}, heartbeat("billing", "orders", "%RETRY%billing"), None),
        (RequestCode.HEART_BEAT, {}, heartbeat("billing", "secret"), "topic secret"),
        (RequestCode.HEART_BEAT, {}, heartbeat("audit"), "group audit"),
        (RequestCode.LOCK_BATCH_MQ, {}, locks("billing", "orders"), None),
        (RequestCode.UNLOCK_BATCH_MQ, {}, locks("billing", "secret"), "topic secret"),
        (RequestCode.UNREGISTER_CLIENT, {"producerGroup": "p"}, b"", None),
        (RequestCode.END_TRANSACTION, {"producerGroup": "p"}, b"", None),
        (RequestCode.END_TRANSACTION, {"producerGroup": "p", "topic": "orders"}, b"", None),
        (RequestCode.END_TRANSACTION, {"topic": "prices"}, b"", "topic prices"),
        (RequestCode.UNREGISTER_CLIENT, {"consumerGroup": "audit"}, b"", "group audit"),
        (RequestCode.GET_MAX_OFFSET, {"topic": "secret"}, b"", None),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "orders"}, b"", "Need admin permission"),
    ],
)
def test_an_account_may_what_its_rules_say(
    code: int, ext: dict[str, str], body: bytes, lacks: str | None
) -> None:
    said = refusal(request(code, body=body, **ext))
    assert (said is None) if lacks is None else (said is not None and lacks in said), said
    assert refusal(request(code, by=ROOT, body=body, **ext)) is None


@pytest.mark.parametrize(
    "topic", ["%OWN%0123456789abcdef", "%PARK%billing", "%AUDIT%orderlane", "%DLQ%billing", "%"]
)
def test_topics_of_the_gateway_have_to_be_named(topic: str) -> None:
    """A default for all topics used to include ownership records and the audit."""
    account = """
    accounts:
    - accessKey: shop-account
      secretKey: shop-secret
      defaultTopicPerm: PUB|SUB
      defaultGroupPerm: PUB|SUB
    """
    requests = [
        request(RequestCode.SEND_MESSAGE, topic=topic),
        request(RequestCode.SEND_MESSAGE_V2, b=topic),
        request(RequestCode.SEND_BATCH_MESSAGE, b=topic),
        request(RequestCode.PULL_MESSAGE, topic=topic, consumerGroup="g"),
        request(RequestCode.UPDATE_CONSUMER_OFFSET, topic=topic, consumerGroup="g"),
        request(RequestCode.QUERY_MESSAGE, topic=topic),
    ]
    for asked in requests:
        with pytest.raises(BrokerError, match="No default permission for topic"):
            rules(account).check(asked, ELSEWHERE)
        named = f"{account}  topicPerms: ['{topic}=PUB|SUB']"
        rules(named).check(asked, ELSEWHERE)
    rules(account).check(request(RequestCode.SEND_MESSAGE, topic="orders"), ELSEWHERE)
    retried = request(RequestCode.PULL_MESSAGE, topic="%RETRY%g", consumerGroup="g")
    rules(account).check(retried, ELSEWHERE)


def test_a_caller_without_an_account_is_refused_every_request() -> None:
    code = RequestCode.GET_MAX_OFFSET
    assert refusal(request(code, by=None)) == "AclException: No accessKey is configured"
    stranger = Credentials("stranger", "whatever")
    assert refusal(request(code, by=stranger)) == "AclException: No acl config for stranger"
    liar = Credentials(SHOP.access_key, "guessed")
    assert "Check signature failed for accessKey=shop-account" in (
        refusal(request(code, by=liar)) or ""
    )
    changed = request(SEND, body=b"x", b="orders")
    changed.ext["b"] = "prices"
    assert "Check signature failed" in (refusal(changed) or "")


def test_trusted_addresses_need_no_signature_and_those_of_an_account_its_name() -> None:
    nobody = request(SEND, by=None, b="secret")
    assert refusal(nobody, "10.10.3.4:1") is None
    assert refusal(nobody, "10.11.3.4:1") is not None
    named = RemotingCommand(SEND, ext={"b": "secret", "AccessKey": SHOP.access_key})
    assert refusal(named, "192.168.0.7:1") is None
    assert refusal(named, "192.168.0.8:1") is not None


def test_all_that_defines_or_deletes_is_for_administrators() -> None:
    for code in ADMIN_CODES:
        assert "Need admin permission" in (refusal(request(code)) or ""), code
        assert refusal(request(code, by=ROOT)) is None


def test_all_between_replicas_is_for_administrators() -> None:
    """A merge once left out the code by which a candidate asks for votes."""
    between = {
        *(RequestCode.JOIN_MASTER, RequestCode.FETCH_LOG, RequestCode.FETCH_TABLES),
        *(RequestCode.REQUEST_VOTE, RequestCode.MASTER_BEAT, RequestCode.CONFIRM_CLOCK),
    }
    assert between <= ADMIN_CODES


def test_a_body_that_cannot_be_read_is_said_so_not_let_through() -> None:
    for code in (RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ):
        with pytest.raises(InvalidCommand):
            rules().check(request(code, body=b"{"), ELSEWHERE)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("*", ["1.2.3.4", "::1"], []),
        ("", [], ["1.2.3.4"]),
        ("1.2.3.4", ["1.2.3.4"], ["1.2.3.5"]),
        ("1.2.3.4,::1", ["1.2.3.4", "::1"], ["::2"]),
        ("1.2.*.*", ["1.2.200.9"], ["1.3.0.0", "::1"]),
        ("1.2.3.5-9", ["1.2.3.5", "1.2.3.9"], ["1.2.3.4", "1.2.3.10"]),
        ("1.2.3.{5,9}", ["1.2.3.5", "1.2.3.9"], ["1.2.3.7"]),
    ],
)
def test_patterns_of_addresses(pattern: str, inside: list[str], outside: list[str]) -> None:
    addresses = Addresses(pattern)
    assert [addresses.match(each) for each in inside + outside] == [True] * len(inside) + [
        False
    ] * len(outside)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("[]", "the file is an array: expected names and values"),
        ("acounts: []", "the file has 'acounts': expected accounts"),
        ("accounts: 5", "accounts is 5: expected a list"),
        ("accounts: [{accessKey: short, secretKey: long-enough}]", "the accessKey of account 's"),
        ("accounts: [{accessKey: long-enough}]", "the secretKey of account 'long-enough' has 0"),
        ("{A}, admin: sure}]", "admin of account long-enough is 'sure'"),
        ("{A}, defaultTopicPerm: READ}]", "has the permission 'READ': expected one of PUB"),
        ("{A}, topicPerms: [orders]}]", "has 'orders': expected as orders=PUB|SUB"),
        ("{A}, perms: []}]", "an account has 'perms': expected accessKey, admin"),
        ("{A}, whiteRemoteAddress: 1.2.3}]", "'1.2.3' is not an address"),
        ("{A}, whiteRemoteAddress: 1.2.3.300}]", "'300' is not within 0 to 255"),
        ("{A}, whiteRemoteAddress: 1.2.3.x}]", "'x' is not a number, range or list"),
        (
            "{A}}, {accessKey: long-enough, secretKey: other-secret}]",
            "long-enough is defined twice",
        ),
    ],
)
def test_the_error_of_an_invalid_file_has_its_position_and_no_secret(wrong: str, says: str) -> None:
    text = wrong.replace("{A}", "accounts: [{accessKey: long-enough, secretKey: my-dear-secret")
    with pytest.raises(ValueError, match=re.escape(says)) as refused:
        rules(text)
    assert "my-dear-secret" not in str(refused.value)


def test_numbers_as_names_are_read_as_their_text() -> None:
    made: Any = rules("accounts: [{accessKey: 12345678, secretKey: 12345678}]")
    assert list(made.accounts) == ["12345678"]


def test_the_example_of_the_documents_is_right() -> None:
    text = (ROOT_FOLDER / "docs/rocketmq.md").read_text()
    example = rules(text.partition("```text\n")[2].partition("```")[0])
    assert set(example.accounts) == {"orderlane-proxy", "shop-account"}
    assert example.accounts["orderlane-proxy"].admin
    assert not example.accounts["shop-account"].has(Need("group", "audit", Right.SUB))
    assert example.accounts["shop-account"].has(Need("topic", "prices", Right.SUB))


# ---- the file -----------------------------------------------------------------------------------


def test_half_of_a_file_of_accounts_locks_nobody_out(tmp_path: Path) -> None:
    """Up to a line of its list it is valid: the accounts below it would be refused."""
    path = tmp_path / "plain_acl.yml"
    path.write_text(RULES)
    file, whole = AccessFile(path), RULES.replace("orders=PUB|SUB", "orders=PUB").encode()
    half = whole[: whole.index(b"- {accessKey: root")]
    allowed = request(RequestCode.SEND_MESSAGE_V2, by=ROOT, b="orders")
    file.rules.check(allowed, ELSEWHERE)
    assert [file.look(each) for each in (half, whole)] == [False, False]
    file.rules.check(allowed, ELSEWHERE)
    assert [file.look(whole), file.look(whole)] == [True, False]
    assert file.rules.accounts["shop-account"].topics["orders"] == Right.PUB


def test_wrong_accounts_are_refused_once_and_those_before_stay(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(RULES)
    file = AccessFile(path)
    assert not file.look(b"accounts: 5")
    with pytest.raises(ValueError, match="accounts is 5"):
        file.look(b"accounts: 5")
    assert not file.look(b"accounts: 5")
    assert file.rules.accounts.keys() == {"shop-account", "root-account"}
    assert [file.look(RULES.encode()), file.look(RULES.encode())] == [False, True]


@pytest.mark.parametrize(
    "text",
    ["accounts: !!bool maybe", "accounts: 2001-99-99", "accounts: !!set [a]", "[" * 5_000],
    ids=["tag", "date", "set", "depth"],
)
def test_a_file_that_cannot_be_parsed_keeps_the_accounts(tmp_path: Path, text: str) -> None:
    """Any other error would end the looks at the file."""
    path = tmp_path / "accounts.yaml"
    path.write_text(RULES)
    file = AccessFile(path)
    file.look(text.encode())
    with pytest.raises(ValueError, match=r"^the file is not valid YAML"):
        file.look(text.encode())
    path.write_text(text)
    with pytest.raises(StoreError, match="the file is not valid YAML"):
        AccessFile(path)
