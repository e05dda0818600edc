"""The command ``orderlane``: finds the verb and reports errors in one sentence."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from itertools import pairwise, takewhile
from typing import Annotated

import typer

from broker_core.errors import RemotingError, StoreError
from proxy.cli.examples import add_examples
from proxy.cli.output import print_text, say
from proxy.cli.streams import drop_output, hold_closed_streams
from proxy.errors import OrderlaneError
from proxy.observe.logs import configure_logs

_HERE = __name__.rpartition(".")[0]
#: Module and function of each verb below ``proxy.cli``; ``app`` has subcommands. Modules are
#: imported on demand: importing all takes more than a second, longer than most verbs.
_VERBS = {
    "up": "processes:up",
    "nameserver": "processes:nameserver",
    "broker": "processes:broker",
    "proxy": "processes:proxy",
    "produce": "produce:produce",
    "consume": "consume:consume",
    "topics": "topics:app",
    "messages": "messages:app",
    "brokers": "brokers:app",
    "lag": "lag:lag",
    "top": "top:top",
    "demo": "demo.command:demo",
    "doctor": "doctor:doctor",
    "completion": "completion:completion",
    "token": "token:token",
    "verify-history": "verify_history:verify_history",
    "bench": "bench:app",
    "store": "store:app",
    "groups": "groups:app",
    "audit": "audit:app",
    "key": "key:app",
    "keys": "keys:app",
    "dead-letters": "dead_letters:app",
    "leases": "leases:app",
    "offsets": "offsets:app",
    "owners": "owners:app",
    "retention": "retention:app",
    "order-key": "order_key:app",
    "spark": "spark_judging:app",
}

#: Shown by ``orderlane --help``.
_ENVIRONMENT = "\n\n".join(
    (
        "Environment:",
        "ORDERLANE_ADMIN_TOKEN: token for the HTTP port of proxies (--http)",
        "ORDERLANE_ADMIN_CA: use TLS there, with this CA file; empty for the system's",
        "ORDERLANE_CLIENT_TOKEN: token for the Thrift port of proxies (--proxy)",
        "ORDERLANE_BROKER_ACCESS_KEY, ORDERLANE_BROKER_SECRET_KEY: account for nameservers and"
        " brokers (--nameserver)",
        "ORDERLANE_BROKER_TLS__CA: use TLS there, with this CA file",
        "ORDERLANE_LOG_LEVEL: log level",
        "HTTP_PROXY and the like have no effect: all connections are direct.",
    )
)
#: Short form of an option, as in other tools.
_SHORT_FORMS = {"--wide": "--output=wide"}
#: Options with names. An empty one would otherwise mean all topics or queues.
_NAMING = frozenset({"--topic", "--queue", "--group", "--client"})

#: Errors of stdout and of histories when the disk is full or broken.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

#: Variables set by shells for completion; zsh and fish set the second to the typed words.
COMPLETE, _TYPED = "_ORDERLANE_COMPLETE", "_TYPER_COMPLETE_ARGS"


def app_of(verbs: Iterable[str] = _VERBS) -> typer.Typer:
    """Return the command line with these *verbs*."""
    app = typer.Typer(
        callback=_options,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="A consumer proxy gateway for ordered messages: every order key gets its own lane.",
        epilog=_ENVIRONMENT,
    )
    for verb in verbs:
        module, _, name = _VERBS[verb].partition(":")
        found = getattr(importlib.import_module(f"{_HERE}.{module}"), name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=verb)
        else:
            app.command(verb)(found)
        add_examples(app, verb)
    return app


def _names() -> typer.Typer:
    """Return all verbs without their modules, for fast completion of the first word."""
    app = typer.Typer()
    for verb in _VERBS:
        app.command(verb)(lambda: None)
    return app


def _completed() -> typer.Typer:
    """Return the verbs needed to complete the typed words."""
    words = (os.environ.get("COMP_WORDS") or os.environ.get(_TYPED, "")).split()
    at = os.environ.get("COMP_CWORD", "")
    first = at.isdigit() and int(at) < 2
    known = not first and len(words) > 1 and words[1] in _VERBS
    return app_of([words[1]]) if known else _names()


def _show_version(given: bool) -> None:
    if given:
        print_text(f"orderlane {metadata.version('orderlane')}")
        raise typer.Exit


def _options(
    log_level: Annotated[
        str,
        typer.Option(help="log level: debug, info, warning, error", envvar="ORDERLANE_LOG_LEVEL"),
    ] = "info",
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="show the version"),
    ] = False,
) -> None:
    if log_level not in ("debug", "info", "warning", "error"):
        raise OrderlaneError(
            f"invalid --log-level {log_level!r}: give debug, info, warning or error"
        )
    configure_logs(level=log_level)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line with *arguments* (None: those of the process).

    Errors that a user can fix end with one sentence on stderr and exit code 2.
    """
    try:
        hold_closed_streams()
    except OrderlaneError as error:
        say(f"orderlane: {error}")
        sys.exit(2)
    words = _expanded(sys.argv[1:] if arguments is None else list(arguments))
    for word, following in pairwise([*words, None]):
        option, given, value = str(word).partition("=")
        if option in _NAMING and (value if given else following) == "":
            say(f"orderlane: {option} is empty: give a name, or leave the option out")
            sys.exit(2)
    verb = next((word for word in words if not word.startswith("-")), None)
    try:
        if COMPLETE in os.environ:
            app = _completed()
        else:
            app = app_of(
                (verb,) if verb in _VERBS else _VERBS
            )  # an unknown verb needs the full list
        code = app(args=words, prog_name="orderlane", standalone_mode=False)
        sys.stdout.flush()  # at the exit a failure would be a traceback
        sys.exit(code)
    except typer.TyperException as error:
        _say_usage(error)
        sys.exit(2)
    except UnicodeEncodeError as error:
        say(f"orderlane: {_no_text(error, words)}")
        sys.exit(2)
    except BrokenPipeError:
        drop_output()
        sys.exit(1)  # the reader of stdout has closed it
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            drop_output()
            say(f"orderlane: the output cannot be written: {error.strerror}")
        elif _is_for_a_person(error):
            say(f"orderlane: {error}")
        else:
            raise
        sys.exit(2)


def _expanded(words: Sequence[str]) -> list[str]:
    """Return *words* with short forms replaced, up to ``--``."""
    options = list(takewhile(lambda word: word != "--", words))
    return [_SHORT_FORMS.get(word, word) for word in options] + list(words[len(options) :])


def _no_text(error: UnicodeEncodeError, words: Sequence[str]) -> str:
    """Return which of *words* is not UTF-8, or which character the terminal cannot show."""
    for word in words:
        if any("\ud800" <= sign <= "\udfff" for sign in word):
            return f"{word!r} is not valid UTF-8: write a key of other bytes as 0x and hex digits"
    return f"{error.object[error.start]!r} has no form in {error.encoding}: change the locale"


def _is_for_a_person(error: Exception) -> bool:
    from thin_client import ClientError  # most verbs do not need it

    return isinstance(error, OrderlaneError | StoreError | RemotingError | ClientError)


def _say_usage(error: typer.TyperException) -> None:
    """Print one sentence about invalid options or arguments; nothing if the help was shown."""
    context = getattr(error, "ctx", None)
    message = " ".join(error.format_message().split())  # a list of choices has lines
    if not message:
        return
    if context is None:
        say(message)
    else:
        say(f"orderlane: {message.rstrip('.')}; see {context.command_path} --help")
