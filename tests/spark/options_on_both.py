"""Each option of Spark's Kafka source, run on that source and on ours:
``python -m tests.spark.options_on_both`` records the results, from which the last column of the
page's table is generated (``python -m tools.tables``).

``--out FILE`` writes them to another file. Needs Java and Maven, which fetches Kafka and Spark's
module for it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

from bench.frame.peer import Work
from bench.peers.java_programs import jar_files
from bench.peers.kafka_node import KafkaNode, NodeTls, kafka_node
from bench.spark_comparison import SOURCE_VERSION
from testkit.certificates import Certificates, keystore, make_certificates
from testkit.processes import ROOT
from testkit.spark_site import SparkGateway, spark_gateway, spark_session
from tests.spark.kafka_programs import RUNS, SCHEMA, SIZES, TARGET, TLS, Site, tls_options
from thin_client.spark.kafka_names import KAFKA_OPTIONS, REFUSED, KafkaOption
from thin_client.spark.option_table import READ

RECORD = ROOT / "tests/spark/options_on_both.json"
KAFKA, OURS = "kafka", "orderlane"
#: Values of options without a counterpart here, where 1 is none.
_VALUES = {
    "kafka.auto.offset.reset": "latest",
    "kafka.compression.type": "gzip",
    "kafka.sasl.mechanism": "PLAIN",
}
Results = dict[str, dict[str, str]]


def gateway_site(spark: Any, gateway: SparkGateway, folder: Path) -> Site:
    """Return a topic of the gateway."""
    topic = gateway.a_topic(queues=len(SIZES))

    def send(counts: list[int], body: bytes) -> None:
        for queue, number in enumerate(counts):
            gateway.send(topic, [body] * number, queue=queue, key="k")

    return Site(
        spark,
        folder,
        OURS,
        {"names": "kafka", "kafka.bootstrap.servers": gateway.servers},
        _names(gateway.a_group()),
        gateway.a_topic,
        topic,
        _stored(send),
    )


def kafka_site(spark: Any, node: KafkaNode, folder: Path) -> Site:
    """Return a topic of Kafka."""
    names = _names("kafka")

    def new_topic() -> str:
        topic = f"orders-{next(names)}"
        node.store(Work(messages=0, keys=1, queues=len(SIZES), topic=topic))
        return topic

    topic = new_topic()
    connecting = {"kafka.bootstrap.servers": node.address}

    def send(counts: list[int], body: bytes) -> None:
        rows = [(b"k", body, part) for part, number in enumerate(counts) for _ in range(number)]
        sink = spark.createDataFrame(rows, SCHEMA).coalesce(1).write.format(KAFKA)
        sink.options(**connecting, topic=topic).mode("append").save()

    return Site(spark, folder, KAFKA, connecting, names, new_topic, topic, _stored(send))


def tls_settings(files: Certificates) -> str:
    """Return the setting of a proxy that requires a client's certificate, in YAML."""
    return (
        f"listen: {{tls: {{certificate: {files.server}, key: {files.server_key},"
        f" client_ca: {files.ca}}}}}\n"
    )


def results(option: KafkaOption, sites: dict[str, Site], secure: dict[str, str]) -> dict[str, str]:
    """Return the result of the program of *option* on each source.

    *secure*: the addresses that require TLS, by source, and all options of TLS.
    """
    return {name: _result(option, site, secure) for name, site in sites.items()}


def _result(option: KafkaOption, site: Site, secure: dict[str, str]) -> str:
    run: Callable[[], object]
    if option.name in TLS:
        given = {name: secure[name] for name in TLS}
        run = partial(site.read, **{"kafka.bootstrap.servers": secure[site.format]}, **given)
    elif option.name in RUNS:
        run = partial(RUNS[option.name][0], site)
    else:
        act: Callable[..., object] = site.read
        if READ not in option.where:
            act = partial(site.written, topic=TARGET)
        run = partial(act, **{option.name: _VALUES.get(option.name, "1")})
    try:
        return repr(run())
    except PySparkException:
        return REFUSED


def _stored(send: Callable[[list[int], bytes], None]) -> int:
    """Send the messages; return the time since which all but the first ones were stored."""
    send([1] * len(SIZES), b"first")
    time.sleep(0.05)  # stored times are whole milliseconds
    later_ms = time.time_ns() // 1_000_000
    send([size - 1 for size in SIZES], b"more")
    return later_ms


def _names(prefix: str) -> Iterator[str]:
    return (f"{prefix}-{number}" for number in count())


def run_all(folder: Path) -> Results:
    """Return the results of all options."""
    jars = jar_files("spark-kafka", {"spark.version": SOURCE_VERSION})
    files = make_certificates(folder)
    own = folder / "node.pem"
    own.write_bytes(keystore(files.server, files.server_key))
    with (
        spark_gateway(folder / "gateway") as gateway,
        kafka_node(folder / "kafka", NodeTls(own, files.ca)) as node,
        spark_session(folder / "spark", spark__jars=",".join(map(str, jars))) as spark,
    ):
        _, ready = gateway.start_proxy(settings=tls_settings(files))
        secure = {**tls_options(files), OURS: ready["thrift"], KAFKA: node.tls_address}
        sites = {
            OURS: gateway_site(spark, gateway, folder / OURS),
            KAFKA: kafka_site(spark, node, folder / KAFKA),
        }
        found = {}
        for option in KAFKA_OPTIONS:
            found[option.name] = results(option, sites, secure)
            sys.stderr.write(f"{option.name}: {found[option.name]}\n")
        return found


def main() -> None:
    """Write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RECORD)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory(prefix="orderlane-options-") as name:
        found = run_all(Path(name))
    out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
