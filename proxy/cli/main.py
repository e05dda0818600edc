"""The command ``orderlane``: registers the verbs, and turns errors into one sentence."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from broker_core.errors import RemotingError, StoreError
from proxy.cli import (
    audit,
    bench,
    consume,
    dead_letters,
    doctor,
    groups,
    key,
    keys,
    lag,
    leases,
    offsets,
    owners,
    processes,
    produce,
    spark_judging,
    token,
    topics,
    verify_history,
)
from proxy.cli.demo import command as demo
from proxy.cli.output import say
from proxy.errors import OrderlaneError
from proxy.logs import configure_logs
from thin_client import ClientError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A consumer proxy gateway for ordered messages: every order key gets its own lane.",
)


@app.callback()
def options(
    log_level: Annotated[
        str, typer.Option(help="debug, info, warning or error", envvar="ORDERLANE_LOG_LEVEL")
    ] = "info",
) -> None:
    """Options of every verb."""
    if log_level not in ("debug", "info", "warning", "error"):
        raise OrderlaneError(f"--log-level {log_level!r} is none of debug, info, warning, error")
    configure_logs(level=log_level)


for verb in (
    *(processes.up, processes.nameserver, processes.broker, processes.proxy),
    *(produce.produce, consume.consume, topics.topics, lag.lag),
    *(demo.demo, doctor.doctor, token.token),
):
    app.command()(verb)
app.command("verify-history")(verify_history.verify_history)
app.add_typer(bench.app, name="bench")
app.add_typer(groups.app, name="groups")
app.add_typer(audit.app, name="audit")
app.add_typer(key.app, name="key")
app.add_typer(keys.app, name="keys")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(leases.app, name="leases")
app.add_typer(offsets.app, name="offsets")
app.add_typer(owners.app, name="owners")
app.add_typer(spark_judging.app, name="spark")


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (None: the process's own); exit code 2 and one sentence for what a
    person can mend.
    """
    try:
        sys.exit(app(args=arguments, prog_name="orderlane", standalone_mode=False))
    except typer.TyperException as error:
        _say_usage(error)
        sys.exit(2)
    except (OrderlaneError, StoreError, RemotingError, ClientError) as error:
        say(f"orderlane: {error}")
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)  # whoever read our output has left


def _say_usage(error: typer.TyperException) -> None:
    """One sentence for options and arguments that are not as they should be; no verb: the help."""
    context = getattr(error, "ctx", None)
    message = error.format_message().strip()
    if context is None or "\n" in message:
        say(message)
    else:
        say(f"orderlane: {message.rstrip('.')}; see {context.command_path} --help")
