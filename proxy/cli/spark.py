"""``orderlane spark``: Spark jobs, which need the extra ``spark`` and a Java runtime.

Spark is imported only when a verb runs, so that other commands start quickly.
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
    finite,
)
from proxy.cli.output import print_json
from proxy.errors import OrderlaneError

app = typer.Typer(
    no_args_is_help=True,
    help="Run Spark jobs: archive, compact, backfill, key-profile, audit.",
)

GroupOption = Annotated[str, typer.Option("--group", help="consumer group to read as")]
MasterOption = Annotated[
    str | None,
    typer.Option(
        help="Spark master, such as local[4] or spark://host:7077, or a server of Spark Connect,"
        " sc://host:15002; '' if --conf sets it"
        " (default: local[*], and under spark-submit its own)"
    ),
]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="NAME=VALUE", help="further option of the data source; repeatable"
    ),
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="Spark setting; repeatable")
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format", metavar="FORMAT", help="parquet, delta or iceberg; iceberg: PATH is a table"
    ),
]
CatalogOption = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog",
        metavar="NAME=VALUE",
        help="option of the Iceberg catalog, as pyiceberg names it; repeatable",
    ),
]


@app.command()
def archive(
    topics: Annotated[str, typer.Argument(help="topic; comma-separated list")],
    path: Annotated[
        str,
        typer.Argument(help="folder of the archive, as a Spark path; of iceberg NAMESPACE.TABLE"),
    ],
    group: GroupOption,
    format: FormatOption = "parquet",
    catalog: CatalogOption = None,
    target_file_size: Annotated[
        str | None,
        typer.Option(help="about the size of a file, such as 128m (default: a file per task)"),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSON file with the columns of JSON bodies, or an example body, for each topic:"
            " adds them as typed columns",
        ),
    ] = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="continue with new messages until SIGTERM")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(help="interval between writes with --continuous, such as '1 minute'"),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="folder for the job's progress (default: _checkpoint in the archive)"),
    ] = None,
    proxy: ProxyOption = DEFAULT_PROXY,
    token: TokenOption = None,
    tls_ca: CaOption = None,
    tls_certificate: CertificateOption = None,
    tls_key: KeyOption = None,
    option: OptionsOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Archive topics by date, each message once, up to the current end.

    The next run continues from there, even after a crash.
    """
    options = connection(proxy, token, ca=tls_ca, certificate=tls_certificate, key=tls_key)
    options |= {"subscribe": topics, "group": group, **pairs(option, "--option")}
    with running("archive", master=master, conf=conf) as session, _until_signal() as ending:
        from thin_client.spark.jobs import archive as job

        done = job.archive(
            session,
            options,
            path,
            format=format,
            catalog=pairs(catalog, "--catalog"),
            target_file_size=target_file_size,
            schemas=_content(schema),
            checkpoint=checkpoint,
            continuous=continuous,
            every=every,
            ending=ending,
        )
    print_json({"archived": done.rows, "batches": done.batches})


@app.command()
def compact(
    path: Annotated[
        str,
        typer.Argument(help="folder of the archive, as a Spark path; of iceberg NAMESPACE.TABLE"),
    ],
    format: FormatOption = "parquet",
    catalog: CatalogOption = None,
    before: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="only days before this one (default: today, in UTC)"),
    ] = None,
    delete_before: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="first delete all days before this one (default: none)"),
    ] = None,
    target_file_size: Annotated[
        str, typer.Option(help="about the size of a file, such as 128m")
    ] = "128m",
    retention: Annotated[
        int | None,
        typer.Option(
            metavar="HOURS",
            help="then delete files that no version of the last HOURS, at least 24, needs"
            " (default: none)",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="checkpoint of an archive as parquet (default: _checkpoint in PATH)"),
    ] = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Merge the small files of an archive, day by day, and delete old days; the archive may go on
    meanwhile.

    After a crash the next run continues.
    """
    with running("compact", master=master, conf=conf) as session:
        from thin_client.spark.jobs import compact as job

        done = job.compact(
            session,
            path,
            format=format,
            catalog=pairs(catalog, "--catalog"),
            before=before,
            delete_before=delete_before,
            target_file_size=target_file_size,
            retention_hours=retention,
            checkpoint=checkpoint,
        )
    print_json(
        {
            "merged": done.before,
            "into": done.after,
            "deleted": done.deleted,
            "days_deleted": done.days,
        }
    )


@app.command()
def backfill(
    path: Annotated[
        str,
        typer.Argument(help="files or their folder, as a Spark path; of iceberg NAMESPACE.TABLE"),
    ],
    topic: Annotated[str, typer.Argument(help="topic to send to")],
    rate: Annotated[
        float | None,
        typer.Option(help="maximum rows per second (default: no limit)", callback=finite),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            help="SQL of a message column, such as 'to_json(struct(*)) AS value'; repeatable"
        ),
    ] = None,
    where: Annotated[str | None, typer.Option(help="SQL condition that selects rows")] = None,
    order_by: Annotated[
        str | None,
        typer.Option(
            help="columns that order the rows of a key, comma-separated (not needed for archives)"
        ),
    ] = None,
    sharding_path: Annotated[
        str | None, typer.Option(help="JSON path of the sharding key in the value")
    ] = None,
    keep_ids: Annotated[
        bool, typer.Option("--keep-ids", help="keep the original message ids")
    ] = False,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="number of tasks (default: all that run in parallel)")
    ] = None,
    progress: Annotated[
        str | None,
        typer.Option(
            help="file with the days done, so that a failed job can continue; on this machine, or"
            " with a scheme a Spark path"
        ),
    ] = None,
    format: FormatOption = "parquet",
    catalog: CatalogOption = None,
    proxy: ProxyOption = DEFAULT_PROXY,
    token: TokenOption = None,
    tls_ca: CaOption = None,
    tls_certificate: CertificateOption = None,
    tls_key: KeyOption = None,
    option: OptionsOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Send the rows of an archive, or of Parquet files, to a topic, in order per key.

    Each message is sent at least once; duplicates have the same id.
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
            format=format,
            catalog=pairs(catalog, "--catalog"),
        )
        sent = job.backfill(session, options, path, topic=topic, plan=plan)
    print_json({"sent": sent})


@app.command()
def package(
    path: Annotated[Path, typer.Argument(help="zip file to write, such as orderlane.zip")],
) -> None:
    """Write a zip of orderlane for Spark executors without an installation of it.

    Pass it to spark-submit --py-files, or to these verbs as --conf spark.submit.pyFiles=PATH.
    """
    from thin_client.spark.package import write_package

    try:
        files = write_package(path)
    except (ValueError, OSError) as error:
        raise OrderlaneError(f"spark package: {error}") from None
    print_json({"package": str(path), "files": files})


# ---- shared by the verbs -------------------------------------------------------------------------


@contextmanager
def running(verb: str, *, master: str | None, conf: Sequence[str] | None) -> Iterator[Any]:
    """Yield a Spark session for *verb*.

    Raises OrderlaneError for problems with the installation, the options or the job.
    """
    settings = pairs(conf, "--conf")
    try:
        from thin_client.spark.jobs.session import errors_as_sentences, job_session
        from thin_client.spark.options import OptionError
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("pyspark", "py4j", "pyarrow", "numpy"):
            raise
        raise OrderlaneError(
            f"spark {verb}: {missing} is not installed: Spark jobs need the extra 'spark', as in"
            " pip install 'orderlane[server,spark]'"
        ) from None
    try:
        with (
            errors_as_sentences(),
            job_session(f"orderlane {verb}", master=master, settings=settings) as session,
        ):
            yield session
    except OptionError as error:
        raise OrderlaneError(f"spark {verb}: {error}") from None


def pairs(given: Sequence[str] | None, flag: str) -> dict[str, str]:
    """Parse ``NAME=VALUE`` texts. Raises OrderlaneError."""
    found: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise OrderlaneError(f"invalid {flag} {text!r}: write NAME=VALUE")
        found[name] = value
    return found


def _content(file: Path | None) -> str | None:
    """Return the text of *file*, if there is one. Raises OrderlaneError."""
    try:
        return None if file is None else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise OrderlaneError(f"cannot read {file}: {error}") from None


def connection(
    proxy: str,
    token: str | None,
    *,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
) -> dict[str, str]:
    """Return the connection options of source and sink."""
    files = {"tlsCa": ca, "tlsCertificate": certificate, "tlsKey": key}
    named = {name: str(path) for name, path in files.items() if path is not None}
    options = {"servers": proxy, **named}
    if named:
        options["tls"] = "true"
    if token is not None:
        options["token"] = token
    return options


@contextmanager
def _until_signal() -> Iterator[threading.Event]:
    """Yield an event set by SIGTERM or SIGINT, which ends a job cleanly; a second one exits."""
    ending = threading.Event()
    former: dict[signal.Signals, Any] = {}

    def on_signal(number: int, _frame: object) -> None:
        if ending.is_set():
            raise SystemExit(128 + number)
        ending.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        former[each] = signal.signal(each, on_signal)
    try:
        yield ending
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)
