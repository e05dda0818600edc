"""Generator of the tables in ``docs/``: settings, metrics, benchmarks, long chaos runs, options of
the Spark source.

``python -m tools.tables`` rewrites them from code and results; a test fails while they are stale.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from bench import document, scale_document
from broker_core.broker.settings import BrokerSettings
from proxy.observe.broker_metrics import broker_definitions
from proxy.observe.metrics import MetricDefinition, definitions
from proxy.settings.proxy_settings import Settings
from thin_client.spark import kafka_names, option_table
from tools import chaos_reports
from tools.setting_fields import setting_fields

ROOT = Path(__file__).resolve().parents[1]
METRIC_PREFIX = "orderlane_"
_OPTIONS_ON_BOTH = ROOT / "tests/spark/options_on_both.json"
#: Values of the commands where a required setting is missing.
_COMMANDS_TAKE = {"data": "`orderlane-data`"}


def tables() -> dict[Path, dict[str, str]]:
    """Return document → name of a marked place in it → its text."""
    return {
        ROOT / "docs/settings.md": {
            "settings": settings_table(Settings),
            "broker-settings": settings_table(BrokerSettings),
        },
        ROOT / "docs/operating.md": {
            "metrics": metrics_table(definitions()),
            "broker-metrics": metrics_table(broker_definitions()),
        },
        ROOT / "docs/benchmarks.md": document.tables(),
        ROOT / "docs/scale.md": scale_document.tables(),
        ROOT / "docs/guarantees.md": chaos_reports.tables(),
        ROOT / "docs/spark.md": {"spark-options": option_table.table()},
        ROOT / "docs/from-spark-kafka.md": {"kafka-options": kafka_options()},
    }


def kafka_options() -> str:
    """Return the options of Spark's Kafka source, with the recorded results of a program for each
    (``tests/spark/options_on_both.py``), if there are any.
    """
    if not _OPTIONS_ON_BOTH.exists():
        return kafka_names.table()
    return kafka_names.table(json.loads(_OPTIONS_ON_BOTH.read_text()))


def settings_table(model: type[BaseModel]) -> str:
    """Return every setting of *model*: its path, default and reason."""
    rows = [
        f"| `{path}` | {_default(path, field)} | {_cell(field.description or '')} |"
        for path, field in setting_fields(model)
    ]
    return "\n".join(["| setting | default | meaning |", "| --- | --- | --- |", *rows])


def metrics_table(metrics: Iterable[MetricDefinition]) -> str:
    """Return every metric: its name, labels and meaning."""
    rows = [
        f"| `{METRIC_PREFIX}{each.name}` | {', '.join(each.labels) or '-'} | {_cell(each.help)} |"
        for each in metrics
    ]
    return "\n".join(["| metric | labels | meaning |", "| --- | --- | --- |", *rows])


def with_tables(text: str, contents: dict[str, str]) -> str:
    """Return *text* with each marked place filled: ``<!-- table: name -->`` … ``<!-- end -->``."""
    for name, table in contents.items():
        pattern = rf"(<!-- table: {name} -->\n).*?(<!-- end -->)"
        if (found := len(re.findall(pattern, text, flags=re.S))) != 1:
            raise ValueError(f"the document has {found} places marked 'table: {name}', not one")
        text = re.sub(pattern, partial(_filled, table), text, flags=re.S)
    return text


def _filled(table: str, place: re.Match[str]) -> str:
    return f"{place[1]}{table}\n{place[2]}"


def _default(path: str, field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return _COMMANDS_TAKE.get(path, "required")
    choices = _choices(field.annotation)
    shown = f"`{_yaml(field.default)}`"
    others = [f"`{choice}`" for choice in choices if choice != field.default]
    return " \\| ".join([shown, *others])


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [choice for argument in get_args(annotation) for choice in _choices(argument)]


def _yaml(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    for made, contents in tables().items():
        made.write_text(with_tables(made.read_text(), contents))
    for picture, text in document.plots().items():
        picture.parent.mkdir(exist_ok=True)
        picture.write_text(text)
