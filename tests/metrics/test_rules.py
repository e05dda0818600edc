"""Alert rules and the dashboard's queries, as Prometheus reads them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import yaml

from testkit.processes import ROOT
from tests.metrics.monitoring import ALERTS, RULE_TESTS, plain, queries


def promtool(*arguments: str | Path) -> str:
    """Return promtool's output; it must succeed."""
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_rules_are_right() -> None:
    assert "SUCCESS" in promtool("check", "rules", ALERTS)


def test_the_configuration_of_docker_compose_is_right(tmp_path: Path) -> None:
    """With the files where the container has them."""
    folder = ROOT / "docs/compose"
    compose = yaml.safe_load((folder / "docker-compose.yml").read_text())
    for mount in compose["services"]["prometheus"]["volumes"]:
        source, target, *_ = mount.split(":")
        if target.startswith("/etc/prometheus/"):
            shutil.copy(folder / source, tmp_path / Path(target).name)
    assert "SUCCESS: 1 rule files found" in promtool("check", "config", tmp_path / "prometheus.yml")


def test_each_alert_is_raised_by_its_condition_alone() -> None:
    assert "SUCCESS" in promtool("test", "rules", RULE_TESTS)


def test_the_queries_of_the_dashboard_are_right(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": plain(query.expression)}
        for number, query in enumerate(queries())
    ]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", path)


def test_a_query_that_is_wrong_would_be_seen(tmp_path: Path) -> None:
    path = tmp_path / "queries.yaml"
    rule = {"record": "query:0", "expr": plain('sum by (group) (up{group=~"$group"}')}
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": [rule]}]}))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, check=False)
    assert done.returncode != 0
