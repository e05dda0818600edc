"""The code of docs/spark.md and docs/from-spark-kafka.md works as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from testkit.processes import ROOT
from testkit.spark_site import SparkGateway


def program_for_kafkas_users() -> str:
    text = (ROOT / "docs/from-spark-kafka.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    return str(program)


def code_of(section: str) -> list[str]:
    text = (ROOT / "docs/spark.md").read_text()
    (body,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, flags=re.S | re.M)
    return re.findall(r"```python\n(.*?)```", body, flags=re.S)


def test_the_guide_works_as_printed(
    spark: Any, gateway: SparkGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Uses this gateway's address and the existing session."""
    for topic in ("orders", "payments"):
        gateway.create_topic(topic)
    sections = [code_of(name) for name in ("Quick start", "Guarantees", "Writing")]
    assert [len(codes) for codes in sections] >= [3, 1, 1]
    printed = []
    codes = [code for codes in sections for code in codes]
    for code in (*codes, program_for_kafkas_users()):
        for usual, here in (
            ("127.0.0.1:9713", gateway.servers),
            ("/tmp/lake", str(tmp_path)),
            ("spark.stop()", ""),
        ):
            code = code.replace(usual, here)
        exec(compile(code, "docs/spark.md", "exec"), {"__name__": "__guide__"})
        printed.append(capsys.readouterr().out)
    assert re.search(r"\|customer-9\|\s+100\|", printed[1])
    assert re.search(r'\|customer-\d\|\{"amount": \d+\}\|\s+\d\|\s+\d+\|', printed[-1])
    assert printed[2] == "1000 orders in the lake\n"
    committed = gateway.committed("lake", "orders")
    assert sum(offset or 0 for offset in committed.values()) == 1000
    read = spark.read.format("orderlane").option("servers", gateway.servers)
    (paid,) = read.option("group", "books").option("subscribe", "payments").load().collect()
    assert (paid.key, bytes(paid.value)) == ("customer-1", b'{"paid": 12}')
