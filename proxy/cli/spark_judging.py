"""``orderlane spark key-profile`` and ``audit``: Spark jobs over topics and recorded histories."""

from __future__ import annotations

import sys
from typing import Annotated

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
from proxy.cli.output import Output, OutputFormat, print_json
from proxy.cli.spark import (
    ConfOption,
    GroupOption,
    MasterOption,
    OptionsOption,
    app,
    connection,
    pairs,
    running,
)
from proxy.cli.verify_history import print_report
from proxy.core.keys.kinds.registry import one_of
from proxy.core.keys.order_key import MissingKey
from proxy.errors import OrderlaneError
from proxy.tuning.key_profile import Windows
from proxy.tuning.report_text import markdown

__all__ = ["app"]

OutOption = Annotated[str, typer.Option(help="folder of the results, as a Spark path")]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="replace existing results in the folder")
]


@app.command("key-profile")
def key_profile(
    topic: Annotated[str, typer.Option(help="topic to profile")],
    candidate: Annotated[
        list[str], typer.Option(help=f"candidate order key: {one_of()}; repeatable")
    ],
    out: OutOption,
    group: GroupOption = "key-profile",
    window: Annotated[
        float,
        typer.Option(help="assumed time for which a key is stuck, s", callback=finite),
    ] = 60.0,
    window_messages: Annotated[
        int, typer.Option(help="assumed number of messages of a queue in memory")
    ] = 10_000,
    workers: Annotated[int, typer.Option(min=1, help="number of concurrent handlers")] = 64,
    missing: Annotated[
        MissingKey, typer.Option(help="treatment of messages without the key")
    ] = MissingKey.BY_QUEUE,
    overwrite: OverwriteOption = False,
    output: Output = OutputFormat.TABLE,
    proxy: ProxyOption = DEFAULT_PROXY,
    token: TokenOption = None,
    tls_ca: CaOption = None,
    tls_certificate: CertificateOption = None,
    tls_key: KeyOption = None,
    option: OptionsOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Compare candidate order keys over all messages of a topic.

    Prints the report, and writes it to OUT with tables of all keys and candidates.
    """
    try:
        windows = Windows(time_ms=round(window * 1000), offsets=window_messages)
    except ValueError as error:
        raise OrderlaneError(f"spark key-profile: {error}") from None
    options = connection(proxy, token, ca=tls_ca, certificate=tls_certificate, key=tls_key)
    options |= {"group": group, **pairs(option, "--option")}
    with running("key-profile", master=master, conf=conf) as session:
        from thin_client.spark.jobs import key_profile as job

        plan = job.Plan(
            candidates=candidate,
            windows=windows,
            missing=missing,
            workers=workers,
            overwrite=overwrite,
        )
        report = job.key_profile(session, options, topic, plan=plan, out=out)
    if output is OutputFormat.JSON:
        print_json(report.as_dict())
    else:
        sys.stdout.write(markdown(report))


@app.command()
def audit(
    histories: Annotated[
        list[str], typer.Argument(help="history files, or folders of them", metavar="HISTORY...")
    ],
    out: OutOption,
    overwrite: OverwriteOption = False,
    output: Output = OutputFormat.TABLE,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Check recorded histories like verify-history, if they are too long for one process.

    Exit code 0: clean; 1: violations; 2: unreadable, or without a send or a delivery.
    """
    with running("audit", master=master, conf=conf) as session:
        from thin_client.spark.jobs import audit as job

        report, verdicts = job.audit(session, histories)
        job.write_audit(session, report, verdicts, out=out, overwrite=overwrite)
    if output is OutputFormat.JSON:
        print_json(report.as_dict())
    else:
        print_report(report)
    if not report.clean:
        raise typer.Exit(1)
