"""Addresses that receivers may have, whatever a URL or a name server says."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from proxy.core.delivery.push_url import parse_url
from proxy.core.delivery.receiver_address import ReceiverAddresses

NONE = ReceiverAddresses()
LISTED = ReceiverAddresses(listed={"billing", "127.0.0.1", "localhost", "::1", "169.254.169.254"})


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "64:ff9b::7f00:1"),
        *("2002:7f00:1::", "0.0.0.0", "0.1.2.3", "::", "::127.0.0.1"),
        *("169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "169.254.1.1"),
        *("fe80::1", "fe80::1%eth0", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"),
        *("192.0.0.192", "fd20:ce::254", "169.254.170.2"),
        *("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1"),
        *("fc00::1", "fdff::1", "fec0::1", "::ffff:10.0.0.1", "2002:a00:1::"),
        *("224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "192.0.2.1"),
        *("2001:db8::1", "2001::1", "64:ff9b:1::1", "not an address", ""),
    ],
)
def test_a_name_that_resolves_to_an_internal_address_is_refused(address: str) -> None:
    assert NONE.problem("hooks.example.com", address) is not None


@pytest.mark.parametrize(
    "address",
    [
        *("93.184.216.34", "1.1.1.1", "172.32.0.1", "11.0.0.1", "100.128.0.1", "168.63.129.17"),
        *("2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"),
    ],
)
def test_public_addresses_are_allowed(address: str) -> None:
    assert NONE.problem("hooks.example.com", address) is None


def test_a_listed_host_may_be_private_but_not_turn_into_this_machine() -> None:
    assert LISTED.problem("billing", "10.1.2.3") is None
    assert LISTED.problem("Billing.", "fd12::1") is None
    for address in ("127.0.0.1", "::1", "0.0.0.0", "169.254.169.254", "100.100.100.200"):
        assert LISTED.problem("billing", address) is not None, address
    for host in ("127.0.0.1", "localhost"):
        assert LISTED.problem(host, "127.0.0.1") is None
    assert LISTED.problem("[::1]", "::1") is None
    assert LISTED.problem("127.0.0.2", "127.0.0.2") is not None, "only the listed one"
    assert LISTED.problem("169.254.169.254", "169.254.169.254") is not None, "not even listed"


def test_networks_allow_addresses_and_a_metadata_service_only_singly() -> None:
    wide = ReceiverAddresses(tuple(map(ip_network, ("0.0.0.0/0", "::/0"))))
    for address in ("127.0.0.1", "10.0.0.1", "169.254.1.1", "::1", "::ffff:10.0.0.1"):
        assert wide.problem("x", address) is None, address
    for address in ("169.254.169.254", "::ffff:a9fe:a9fe", "fd00:ec2::254", "100.100.100.200"):
        assert wide.problem("x", address) is not None, address
    single = ReceiverAddresses((ip_network("169.254.169.254/32"),))
    assert single.problem("x", "169.254.169.254") is None
    assert single.problem("x", "169.254.169.253") is not None


def test_the_reason_names_host_address_and_setting() -> None:
    assert NONE.problem("hooks.example.com", "127.0.0.1") == (
        "hooks.example.com resolves to 127.0.0.1, a loopback address, which receiver_networks does"
        " not allow"
    )
    assert NONE.literal_problem("[::1]") == (
        "::1 is a loopback address, which receiver_networks does not allow"
    )
    assert NONE.literal_problem("hooks.example.com") is None


@pytest.mark.parametrize(
    "host",
    [
        *("2130706433", "0x7f000001", "0x7F.1", "017700000001", "127.1", "127.0.1", "0177.0.0.1"),
        *("127.0.0.01", "1.2.3.4.5", "256.1.1.1", "[::1::]", "a.1", "a.0x1"),
    ],
)
def test_an_address_in_another_form_is_refused(host: str) -> None:
    for rules in (NONE, LISTED, ReceiverAddresses((ip_network("0.0.0.0/0"),))):
        assert "is not an address" in str(rules.literal_problem(parse_url(f"http://{host}/").host))


@pytest.mark.parametrize("host", ["10.0.0.7", "[::ffff:10.0.0.7]", "a1", "1a", "0x7f.example"])
def test_names_and_addresses_in_the_usual_form_are_not(host: str) -> None:
    assert "is not an address" not in str(NONE.literal_problem(parse_url(f"http://{host}/").host))
