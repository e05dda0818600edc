"""``orderlane token``: a new token for clients, and what the settings keep of it."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated

import typer
import yaml

from proxy.cli.output import Output, OutputFormat, print_json, say

#: 256 bits: a plain hash of it cannot be turned round.
_TOKEN_BYTES = 32


def token(
    name: Annotated[str, typer.Argument(help="Whose token it is; for people.")],
    output: Output = OutputFormat.TABLE,
) -> None:
    """Make a token: the settings get its hash, clients get the token, which is kept nowhere."""
    made = secrets.token_urlsafe(_TOKEN_BYTES)
    entry = {"name": name, "sha256": hashlib.sha256(made.encode()).hexdigest()}
    if output is OutputFormat.JSON:
        print_json({"token": made, **entry})
        return
    say("for the clients (option token), shown this once:")
    typer.echo(made)
    say("for the proxies' settings:")
    typer.echo(yaml.safe_dump({"tokens": [entry]}, sort_keys=False).rstrip())
