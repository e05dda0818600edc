"""Words of documented commands translated to this machine, where the usual ports may be in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import typer

from tests.support.cli_words import Typed, command_of, typed

#: The variable with the addresses that replace the usual ones, as JSON by port.
ADDRESSES = "DOC_ADDRESSES"
_PORTS = ("--thrift-port", "--http-port")
#: The options, by serving verb, that make it listen on any free port.
LISTENING: Mapping[str, Sequence[str]] = {
    "up": (*_PORTS, "--nameserver-port", "--broker-port"),
    "nameserver": ("--listen",),
    "broker": ("--listen",),
    "proxy": _PORTS,
}


def here(words: Sequence[str], addresses: Mapping[str, str]) -> list[str]:
    """Return the words with local addresses added; invalid words stay unchanged."""
    try:
        understood = typed(words)
    except typer.TyperException:
        return list(words)
    return [*words, *_listening(understood), *_defaults(understood, addresses)]


def _listening(understood: Typed) -> list[str]:
    options = LISTENING.get(understood.verb, ())
    return [
        word
        for option in options
        for word in (option, "127.0.0.1:0" if option == "--listen" else "0")
    ]


def _defaults(understood: Typed, addresses: Mapping[str, str]) -> list[str]:
    more: list[str] = []
    command, _ = command_of(understood.verb.split())
    for parameter in command.params:
        default = understood.parameters.get(parameter.name)
        if understood.verb in ("broker", "proxy") and parameter.name == "nameserver":
            default = default or "127.0.0.1:9876"  # as their settings say
        if parameter.name in understood.given or parameter.name == "listen":
            continue
        address = addresses.get(str(default).rpartition(":")[2]) if isinstance(default, str) else ""
        if address:
            more += [parameter.opts[0], address]
    return more
