"""The access rules of a broker: RocketMQ 4.9's ``plain_acl.yml``, and the check by them. Pure.

A request comes from an account (``signing.py``), or from an address that is trusted without one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from broker_core.access.needs import ADMIN_CODES, Need, Right, needs_of
from broker_core.errors import BrokerError
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.json_fields import short
from broker_core.remoting.signing import ACCESS_KEY, Credentials, is_signed

_MIN_CHARS = 7  # of names and secrets, as RocketMQ requires
_RIGHTS = {
    "PUB": Right.PUB,
    "SUB": Right.SUB,
    "PUB|SUB": Right.PUB | Right.SUB,
    "SUB|PUB": Right.PUB | Right.SUB,
    "DENY": Right.NONE,
}
_FIELDS = frozenset(
    {
        *("accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm"),
        *("defaultGroupPerm", "topicPerms", "groupPerms"),
    }
)
#: Top-level fields; RocketMQ's own tools write the version there.
_TOP = frozenset({"accounts", "globalWhiteRemoteAddresses", "dataVersion"})


class Addresses:
    """Patterns of addresses: ``10.0.*.*``, ``10.0.0.1-9``, ``10.0.0.{1,5}``, ``*``, or one."""

    def __init__(self, text: str) -> None:
        """Parse *text*; empty matches nothing. Raise ValueError for an invalid pattern."""
        text = text.strip()
        self._all = text in ("*", "*.*.*.*")
        self._exact: frozenset[str] = frozenset()
        self._parts: list[frozenset[int]] = []
        if not text or self._all:
            return
        try:
            self._exact = frozenset(str(ipaddress.ip_address(each)) for each in text.split(","))
        except ValueError:
            self._parts = [_numbers(part, text) for part in _split(text)]

    def match(self, address: str) -> bool:
        """Return whether *address* (without a port) matches."""
        if self._all or address in self._exact:
            return True
        parts = address.split(".")
        return len(parts) == len(self._parts) == 4 and all(
            part.isdecimal() and int(part) in allowed
            for part, allowed in zip(parts, self._parts, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Rights of an account; topics and groups that are not named have the default.

    Topics that begin with % have to be named: they hold dead letters, and the gateway's records.
    """

    credentials: Credentials
    trusted: Addresses
    admin: bool = False
    default_topic: Right = Right.NONE
    default_group: Right = Right.NONE
    topics: Mapping[str, Right] = field(default_factory=dict)
    groups: Mapping[str, Right] = field(default_factory=dict)

    def has(self, need: Need) -> bool:
        """Return whether the account has the right."""
        named, default = (
            (self.topics, self.default_topic)
            if need.kind == "topic"
            else (self.groups, self.default_group)
        )
        if self.admin and not self.topics and not self.groups:
            return True
        if need.is_internal:
            default = Right.NONE
        return bool(named.get(need.name, default) & need.right)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """All accounts by name, and addresses that need none."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    trusted: Sequence[Addresses] = ()

    @classmethod
    def from_fields(cls, fields: object) -> AccessRules:
        """Parse the content of the file. Raise ValueError that names the invalid part."""
        top = _object(fields, "the file", _TOP)
        accounts = [_account(each) for each in _list(top, "accounts")]
        names = [each.credentials.access_key for each in accounts]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"account {twice[0]} is defined twice")
        return cls(
            dict(zip(names, accounts, strict=True)),
            [Addresses(str(each)) for each in _list(top, "globalWhiteRemoteAddresses")],
        )

    def check(self, request: RemotingCommand, peer: str) -> None:
        """Raise BrokerError unless *request* is permitted; *peer* is host:port."""
        name = request.ext.get(ACCESS_KEY)
        account = self._account(name, peer)
        if account is None:
            return
        if not is_signed(request.ext, request.body, secret=account.credentials.secret):
            raise _refused(f"Check signature failed for accessKey={name}")
        if request.code in ADMIN_CODES and not account.admin:
            raise _refused(
                f"Need admin permission for request code={request.code}, but accessKey={name} is"
                " not"
            )
        _check_needs(account, needs_of(request))

    def check_needs(self, name: str | None, peer: str, needs: Iterable[Need]) -> None:
        """Raise BrokerError unless the account *name*, whose signature was valid, has the rights
        *needs* now.
        """
        account = self._account(name, peer)
        if account is not None:
            _check_needs(account, needs)

    def _account(self, name: str | None, peer: str) -> Account | None:
        """Return the account, None if the address is trusted. Raise BrokerError if there is
        none.
        """
        address = peer.rpartition(":")[0].strip("[]")
        if any(trusted.match(address) for trusted in self.trusted):
            return None
        if name is None:
            raise _refused("No accessKey is configured")
        account = self.accounts.get(name)
        if account is None:
            raise _refused(f"No acl config for {name[:80]}")
        return None if account.trusted.match(address) else account


def _check_needs(account: Account, needs: Iterable[Need]) -> None:
    for need in needs:
        if not account.has(need):
            raise _refused(
                f"No default permission for {need.kind} {need.name[:200]}:"
                f" accessKey={account.credentials.access_key} needs {need.right.name}"
            )


def _refused(why: str) -> BrokerError:
    # 5.x answers with this code, 4.9 with 1, which is also that of any failure.
    return BrokerError(ResponseCode.NO_PERMISSION, f"AclException: {why}")


def _account(value: object) -> Account:
    fields = _object(value, "an account", _FIELDS)
    name, secret = (str(fields.get(each, "")) for each in ("accessKey", "secretKey"))
    for what, text in (("accessKey", name), ("secretKey", secret)):
        if len(text) < _MIN_CHARS:
            raise ValueError(
                f"the {what} of account {name!r} has {len(text)} characters: at least {_MIN_CHARS}"
            )
    admin = fields.get("admin", False)
    if not isinstance(admin, bool):
        raise _wrong(f"admin of account {name}", admin, "true or false")
    return Account(
        credentials=Credentials(name, secret),
        trusted=Addresses(str(fields.get("whiteRemoteAddress") or "")),
        admin=admin,
        default_topic=_right(fields.get("defaultTopicPerm", "DENY"), name),
        default_group=_right(fields.get("defaultGroupPerm", "DENY"), name),
        topics=dict(_named_right(each, name) for each in _list(fields, "topicPerms")),
        groups=dict(_named_right(each, name) for each in _list(fields, "groupPerms")),
    )


def _right(text: object, account: str) -> Right:
    found = _RIGHTS.get(str(text).replace(" ", ""))
    if found is None:
        raise ValueError(
            f"account {account} has the permission {short(text)}: expected one of"
            f" {', '.join(_RIGHTS)}"
        )
    return found


def _named_right(text: object, account: str) -> tuple[str, Right]:
    name, equals, right = str(text).partition("=")
    if not equals or not name.strip():
        raise ValueError(f"account {account} has {short(text)}: expected as orders=PUB|SUB")
    return name.strip(), _right(right, account)


def _object(value: object, what: str, known: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(what, value, "names and values")
    if unknown := sorted(str(name) for name in value if name not in known):
        raise ValueError(f"{what} has {unknown[0][:80]!r}: expected {', '.join(sorted(known))}")
    return value


def _list(fields: Mapping[str, Any], name: str) -> list[Any]:
    value = fields.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _wrong(name, value, "a list")
    return value


def _wrong(what: str, value: object, expected: str) -> ValueError:
    return ValueError(f"{what} is {short(value)}: expected {expected}")


def _split(text: str) -> list[str]:
    parts = text.split(".")
    if len(parts) != 4:
        raise ValueError(
            f"{text!r} is not an address: expected a form such as 10.0.0.1, 10.0.*.* or 10.0.0.1-9"
        )
    return parts


def _numbers(part: str, text: str) -> frozenset[int]:
    first, dash, last = part.partition("-")
    if part == "*":
        return frozenset(range(256))
    if dash and first.isdecimal() and last.isdecimal():
        found = frozenset(range(int(first), int(last) + 1))
    else:
        listed = part[1:-1].split(",") if part[:1] == "{" and part[-1:] == "}" else [part]
        if not all(each.isdecimal() for each in listed):
            raise ValueError(f"{text!r} is not an address: {part!r} is not a number, range or list")
        found = frozenset(map(int, listed))
    if not found or max(found) > 255:
        raise ValueError(f"{text!r} is not an address: {part!r} is not within 0 to 255")
    return found
