"""The command ``orderlane``: finds the verb, and turns errors into one sentence."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from broker_core.errors import RemotingError, StoreError
from proxy.cli.examples import add_examples
from proxy.cli.output import say
from proxy.errors import OrderlaneError
from proxy.observe.logs import configure_logs

#: Where a verb's function stands below ``proxy.cli``; ``app``: it has verbs of its own. What is not
#: asked for is not imported: all of it takes over a second, longer than most verbs.
_VERBS = {
    "up": "processes:up",
    "nameserver": "processes:nameserver",
    "broker": "processes:broker",
    "proxy": "processes:proxy",
    "produce": "produce:produce",
    "consume": "consume:consume",
    "topics": "topics:topics",
    "lag": "lag:lag",
    "top": "top:top",
    "demo": "demo.command:demo",
    "doctor": "doctor:doctor",
    "completion": "completion:completion",
    "token": "token:token",
    "verify-history": "verify_history:verify_history",
    "bench": "bench:app",
    "groups": "groups:app",
    "audit": "audit:app",
    "key": "key:app",
    "keys": "keys:app",
    "dead-letters": "dead_letters:app",
    "leases": "leases:app",
    "offsets": "offsets:app",
    "owners": "owners:app",
    "order-key": "order_key:app",
    "spark": "spark_judging:app",
}

#: What shells set when they want words completed; the second: what is typed, but for bash.
COMPLETE, _TYPED = "_ORDERLANE_COMPLETE", "_TYPER_COMPLETE_ARGS"


def app_of(verbs: Iterable[str] = _VERBS) -> typer.Typer:
    """The command line with these of its *verbs*."""
    app = typer.Typer(
        callback=_options,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="A consumer proxy gateway for ordered messages: every order key gets its own lane.",
    )
    for verb in verbs:
        module, _, name = _VERBS[verb].partition(":")
        found = getattr(importlib.import_module(f"proxy.cli.{module}"), name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=verb)
        else:
            app.command(verb)(found)
        add_examples(app, verb)
    return app


def _names() -> typer.Typer:
    """All verbs by name alone, for who completes the first word at once."""
    app = typer.Typer()
    for verb in _VERBS:
        app.command(verb)(lambda: None)
    return app


def _completed() -> typer.Typer:
    """What the words need that a shell wants completed."""
    words = (os.environ.get("COMP_WORDS") or os.environ.get(_TYPED, "")).split()
    at = os.environ.get("COMP_CWORD", "")
    first = at.isdigit() and int(at) < 2
    known = not first and len(words) > 1 and words[1] in _VERBS
    return app_of([words[1]]) if known else _names()


def _options(
    log_level: Annotated[
        str, typer.Option(help="debug, info, warning or error", envvar="ORDERLANE_LOG_LEVEL")
    ] = "info",
) -> None:
    if log_level not in ("debug", "info", "warning", "error"):
        raise OrderlaneError(f"--log-level {log_level!r} is none of debug, info, warning, error")
    configure_logs(level=log_level)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (None: the process's own); exit code 2 and one sentence for what a
    person can mend.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    verb = next((word for word in words if not word.startswith("-")), None)
    try:
        if COMPLETE in os.environ:
            app = _completed()
        else:
            app = app_of((verb,) if verb in _VERBS else _VERBS)  # who errs is told what there is
        sys.exit(app(args=words, prog_name="orderlane", standalone_mode=False))
    except typer.TyperException as error:
        _say_usage(error)
        sys.exit(2)
    except UnicodeEncodeError as error:
        say(f"orderlane: {_no_text(error, words)}")
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)  # whoever read our output has left
    except Exception as error:
        if not _is_for_a_person(error):
            raise
        say(f"orderlane: {error}")
        sys.exit(2)


def _no_text(error: UnicodeEncodeError, words: Sequence[str]) -> str:
    """What of *words* has other bytes; else what the terminal has no sign for."""
    for word in words:
        if any("\ud800" <= sign <= "\udfff" for sign in word):
            return (
                f"{word!r} is no text in UTF-8: a key of other bytes is named by 0x and their hex"
            )
    return f"{error.object[error.start]!r} cannot be written in {error.encoding}: see the locale"


def _is_for_a_person(error: Exception) -> bool:
    from thin_client import ClientError  # most verbs need none of it

    return isinstance(error, OrderlaneError | StoreError | RemotingError | ClientError)


def _say_usage(error: typer.TyperException) -> None:
    """One sentence for options and arguments that are not as they should be; where no verb was
    given the help was shown, and says enough.
    """
    context = getattr(error, "ctx", None)
    message = error.format_message().strip()
    if not message:
        return
    if context is None or "\n" in message:
        say(message)
    else:
        say(f"orderlane: {message.rstrip('.')}; see {context.command_path} --help")
