"""``orderlane token``: create a client token and its settings entry."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated

import typer
import yaml

from proxy.cli.output import Output, OutputFormat, print_json, say

#: 256 bits, so that a plain hash cannot be reversed.
_TOKEN_BYTES = 32


def token(
    name: Annotated[str, typer.Argument(help="name of the token's owner")],
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create a token for clients, and the settings entry with its hash; the token is not stored."""
    made = secrets.token_urlsafe(_TOKEN_BYTES)
    entry = {"name": name, "sha256": hashlib.sha256(made.encode()).hexdigest()}
    if output is OutputFormat.JSON:
        print_json({"token": made, **entry})
        return
    say("for clients (option token), shown only once:")
    typer.echo(made)
    say("for the proxies' settings:")
    typer.echo(yaml.safe_dump({"tokens": [entry]}, sort_keys=False).rstrip())
