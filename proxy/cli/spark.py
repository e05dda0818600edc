"""``orderlane spark``: jobs on Spark. They need the extra ``spark``, and a Java runtime.

Nothing of Spark is imported before a verb runs: the others start without it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from proxy.cli.options import (
    DEFAULT_PROXY,
    CaOption,
    CertificateOption,
    KeyOption,
    ProxyOption,
    TokenOption,
)
from proxy.cli.output import print_json
from proxy.errors import OrderlaneError

app = typer.Typer(
    no_args_is_help=True,
    help="Jobs on Spark: archive, backfill, key-profile, audit; package, for clusters.",
)

GroupOption = Annotated[str, typer.Option("--group", help="the consumer group to read as")]
MasterOption = Annotated[
    str | None,
    typer.Option(
        help="Spark's master, as in local[4] or spark://host:7077; under spark-submit: ''"
    ),
]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="any other option of the data source"),
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="a setting of Spark")
]
DEFAULT_MASTER = "local[*]"


@app.command()
def archive(
    topics: Annotated[str, typer.Argument(help="the topic; several by commas")],
    path: Annotated[str, typer.Argument(help="folder of the archive, as Spark names folders")],
    group: GroupOption,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="go on with what comes, until SIGTERM")
    ] = False,
    every: Annotated[
        str | None, typer.Option(help="of --continuous: how often to write, as in '1 minute'")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="folder of its progress (default: _checkpoint in PATH)")
    ] = None,
    proxy: ProxyOption = DEFAULT_PROXY,
    token: TokenOption = None,
    tls_ca: CaOption = None,
    tls_certificate: CertificateOption = None,
    tls_key: KeyOption = None,
    option: OptionsOption = None,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
) -> None:
    """Write topics to Parquet by date, each message once, and end with what is there now.

    Run again, it goes on where it was, also after a crash at any point.
    """
    options = connection(proxy, token, ca=tls_ca, certificate=tls_certificate, key=tls_key)
    options |= {"subscribe": topics, "group": group, **pairs(option, "--option")}
    with running("archive", master=master, conf=conf) as session, _until_told() as ending:
        from thin_client.spark.jobs import archive as job

        done = job.archive(
            session,
            options,
            path,
            checkpoint=checkpoint,
            continuous=continuous,
            every=every,
            ending=ending,
        )
    print_json({"archived": done.rows, "batches": done.batches})


@app.command()
def backfill(
    path: Annotated[
        str, typer.Argument(help="Parquet files or a folder of them, as Spark names it")
    ],
    topic: Annotated[str, typer.Argument(help="the topic to send to")],
    rate: Annotated[float | None, typer.Option(help="rows a second at most")] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(help="SQL that makes a column of messages: 'to_json(struct(*)) AS value'"),
    ] = None,
    where: Annotated[str | None, typer.Option(help="SQL that says which rows")] = None,
    order_by: Annotated[
        str | None,
        typer.Option(help="columns that order the rows of a key, by commas (archives need none)"),
    ] = None,
    sharding_path: Annotated[
        str | None, typer.Option(help="JSON path into the value that finds the sharding key")
    ] = None,
    keep_ids: Annotated[
        bool, typer.Option("--keep-ids", help="messages keep the ids that they had")
    ] = False,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="tasks (default: as many as run at a time)")
    ] = None,
    progress: Annotated[
        Path | None, typer.Option(help="file by which a job that failed goes on, day by day")
    ] = None,
    proxy: ProxyOption = DEFAULT_PROXY,
    token: TokenOption = None,
    tls_ca: CaOption = None,
    tls_certificate: CertificateOption = None,
    tls_key: KeyOption = None,
    option: OptionsOption = None,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
) -> None:
    """Send the rows of Parquet files to a topic, those of a key in their order.

    Messages are sent at least once; repeats have the same id.
    """
    options = connection(proxy, token, ca=tls_ca, certificate=tls_certificate, key=tls_key)
    options |= pairs(option, "--option")
    with running("backfill", master=master, conf=conf) as session:
        from thin_client.spark.jobs import backfill as job

        plan = job.Plan(
            select=tuple(select or ()),
            where=where,
            order_by=tuple(filter(None, (order_by or "").replace(" ", "").split(","))),
            sharding_path=sharding_path,
            rows_per_second=rate,
            partitions=partitions,
            keep_ids=keep_ids,
            progress=progress,
        )
        sent = job.backfill(session, options, path, topic=topic, plan=plan)
    print_json({"sent": sent})


@app.command()
def package(
    path: Annotated[Path, typer.Argument(help="the zip to write, as orderlane.zip")],
) -> None:
    """Write the zip that Spark carries to executors where orderlane is not installed.

    Name it with --py-files of spark-submit, or --conf spark.submit.pyFiles=PATH of these verbs.
    """
    from thin_client.spark.package import write_package

    try:
        files = write_package(path)
    except (ValueError, OSError) as error:
        raise OrderlaneError(f"spark package: {error}") from None
    print_json({"package": str(path), "files": files})


# ---- what the verbs share ------------------------------------------------------------------------


@contextmanager
def running(verb: str, *, master: str | None, conf: Sequence[str] | None) -> Iterator[Any]:
    """A Spark session for *verb*. Raises OrderlaneError with one sentence for what is wrong with
    the installation, the options or the job.
    """
    settings = pairs(conf, "--conf")
    try:
        from thin_client.spark.jobs.session import failing_in_words, job_session
        from thin_client.spark.options import OptionError
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("pyspark", "py4j", "pyarrow", "numpy"):
            raise
        raise OrderlaneError(
            f"spark {verb}: {missing} is not installed: jobs on Spark need the extra 'spark', as in"
            " pip install 'orderlane[server,spark]'"
        ) from None
    try:
        with (
            failing_in_words(),
            job_session(f"orderlane {verb}", master=master or None, settings=settings) as session,
        ):
            yield session
    except OptionError as error:
        raise OrderlaneError(f"spark {verb}: {error}") from None


def pairs(given: Sequence[str] | None, flag: str) -> dict[str, str]:
    """``NAME=VALUE`` texts as a mapping. Raises OrderlaneError."""
    found: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise OrderlaneError(f"{flag} {text!r} is no NAME=VALUE")
        found[name] = value
    return found


def connection(
    proxy: str,
    token: str | None,
    *,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
) -> dict[str, str]:
    """The options of source and sink that say how to reach the proxy."""
    files = {"tlsCa": ca, "tlsCertificate": certificate, "tlsKey": key}
    named = {name: str(path) for name, path in files.items() if path is not None}
    options = {"servers": proxy, **named}
    if named:
        options["tls"] = "true"
    if token is not None:
        options["token"] = token
    return options


@contextmanager
def _until_told() -> Iterator[threading.Event]:
    """Set by SIGTERM and SIGINT: a job ends in order. A second one ends the process."""
    ending = threading.Event()
    former: dict[signal.Signals, Any] = {}

    def told(number: int, _frame: object) -> None:
        if ending.is_set():
            raise SystemExit(128 + number)
        ending.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        former[each] = signal.signal(each, told)
    try:
        yield ending
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)
