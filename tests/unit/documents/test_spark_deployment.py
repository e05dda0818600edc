"""The image for Spark, and the examples that run it: what they name is there, and fits together."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from testkit.processes import ROOT
from tests.support.cli_words import typed

FOLDER = ROOT / "docs/spark-deployment"
DOCKERFILE = (ROOT / "Dockerfile.spark").read_text()
JOB = "/opt/orderlane/orderlane_job.py"
#: Fields of the Spark operator's resources (v1beta2) that the examples use, with their types.
POD = {
    "cores": int,
    "memory": str,
    "serviceAccount": str,
    "instances": int,
    "securityContext": {
        "runAsNonRoot": bool,
        "runAsUser": int,
        "runAsGroup": int,
        "allowPrivilegeEscalation": bool,
        "capabilities": {"drop": list},
        "seccompProfile": {"type": str},
    },
}
APPLICATION = {
    "type": str,
    "pythonVersion": str,
    "mode": str,
    "sparkVersion": str,
    "image": str,
    "mainApplicationFile": str,
    "arguments": list,
    "restartPolicy": {
        "type": str,
        "onFailureRetries": int,
        "onFailureRetryInterval": int,
        "onSubmissionFailureRetries": int,
        "onSubmissionFailureRetryInterval": int,
    },
    "driver": {name: kind for name, kind in POD.items() if name != "instances"},
    "executor": POD,
}
SCHEDULED = {
    "schedule": str,
    "concurrencyPolicy": str,
    "successfulRunHistoryLimit": int,
    "failedRunHistoryLimit": int,
    "template": APPLICATION,
}
KINDS = {"SparkApplication": APPLICATION, "ScheduledSparkApplication": SCHEDULED}
#: Parameters of Airflow's SparkSubmitOperator, and of each operator, that the example may use.
OPERATOR = {
    *("application", "application_args", "conf", "conn_id", "env_vars", "files", "name"),
    *("num_executors", "py_files", "retries", "retry_delay", "task_id"),
}


def instructions(word: str) -> list[str]:
    """Return the arguments of one kind of instruction, in order."""
    text = re.sub(r"\\\n\s*", " ", DOCKERFILE)
    return re.findall(rf"^{word} (.*)$", text, flags=re.M)


def unknown(found: Any, known: Any, path: str = "") -> list[str]:
    """Return the fields of *found* that *known* does not have, or that have another type."""
    if not isinstance(known, dict):
        return [] if type(found) is known else [f"{path} is no {known.__name__}"]
    return [
        problem
        for name, value in found.items()
        for problem in (
            unknown(value, known[name], f"{path}.{name}") if name in known else [f"{path}.{name}"]
        )
    ]


def entry() -> Any:
    """Return the function that translates a container's arguments."""
    return runpy.run_path(str(FOLDER / "entry.py"))["command"]


# ---- the image -----------------------------------------------------------------------------------


def test_what_the_image_copies_is_in_the_build_context() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    copied = [words.split() for words in instructions("COPY") if not words.startswith("--from")]
    sources = [name for *names, _ in copied for name in names]
    assert [name for name in sources if not (ROOT / name).exists()] == []
    left_out = [name for name in sources if name.partition("/")[0] in ignored]
    assert [name for name in left_out if f"!{name}" not in ignored] == []


def test_the_image_is_made_like_that_of_the_gateway() -> None:
    """Its build differs in the packages: what is fixed there is fixed here."""

    def build(text: str) -> list[str]:
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        stage = "\n".join(lines[: [n for n, s in enumerate(lines) if s.startswith("FROM")][1]])
        stage = stage.replace("/opt/orderlane", "/opt/venv").replace("server.txt", "PACKAGES.txt")
        stage = stage.replace("spark-connect.txt", "PACKAGES.txt")
        return re.sub(r'"orderlane\[.*?\]"', "orderlane", stage).splitlines()

    assert build(DOCKERFILE) == build((ROOT / "Dockerfile").read_text())


def test_the_image_runs_as_a_user_with_a_name_but_not_as_root() -> None:
    (user,) = instructions("USER")
    number, _ = user.split(":")
    assert int(number) > 0
    assert f"useradd --uid {number}" in DOCKERFILE
    assert '["python", "/opt/orderlane/entry.py"]' in instructions("ENTRYPOINT")


def test_the_image_has_java_of_a_version_that_spark_supports() -> None:
    assert "eclipse-temurin:17-jre" in DOCKERFILE
    (settings,) = instructions("ENV")[1:]
    assert "JAVA_HOME=/opt/java/openjdk" in settings.split()


def test_the_program_for_spark_submit_is_the_documented_one() -> None:
    page = (ROOT / "docs/spark.md").read_text()
    (shown,) = re.findall(r"`orderlane_job\.py`:\n\n```python\n(.*?)```", page, flags=re.S)
    assert (FOLDER / "orderlane_job.py").read_text().endswith(shown)


# ---- its entry point -----------------------------------------------------------------------------


def test_a_driver_is_a_submission_in_client_mode() -> None:
    given = {"SPARK_HOME": "/opt/spark", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7"}
    found = entry()(["driver", "--properties-file", "p", "local:///job.py"], given)
    assert found == [
        "/opt/spark/bin/spark-submit",
        *("--conf", "spark.driver.bindAddress=10.0.0.7"),
        *("--conf", "spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.7"),
        *("--deploy-mode", "client", "--properties-file", "p", "local:///job.py"),
    ]


def test_an_executor_has_the_options_of_its_variables_in_their_order() -> None:
    given = {
        "SPARK_HOME": "/opt/spark",
        "JAVA_HOME": "/opt/java/openjdk",
        "SPARK_EXECUTOR_MEMORY": "2048m",
        "SPARK_DIST_CLASSPATH": "/more/*",
        "SPARK_DRIVER_URL": "spark://driver:7078",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "orders-exec-3",
        **{f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 2, 0)},
    }
    found = entry()(["executor"], given)
    assert found[:4] == ["/opt/java/openjdk/bin/java", "-Dn=0", "-Dn=2", "-Dn=10"]
    assert found[4:8] == [
        "-Xms2048m",
        "-Xmx2048m",
        "-cp",
        "/opt/spark/conf:/opt/spark/jars/*:/more/*",
    ]
    options = dict(zip(found[9::2], found[10::2], strict=True))
    assert options["--driver-url"] == "spark://driver:7078"
    assert (options["--executor-id"], options["--podName"]) == ("3", "orders-exec-3")
    with pytest.raises(KeyError, match="SPARK_EXECUTOR_MEMORY"):
        entry()(["executor"], {})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["orderlane"]),
        (["orderlane", "spark", "--help"], ["orderlane", "spark", "--help"]),
        (["spark-submit", "--version"], ["spark-submit", "--version"]),
    ],
)
def test_other_arguments_are_a_command(arguments: list[str], expected: list[str]) -> None:
    assert entry()(arguments, {}) == expected


# ---- the examples --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["archive.yaml", "scheduled-archive.yaml"])
def test_a_resource_has_fields_of_the_spark_operator_and_a_verb_with_its_options(name: str) -> None:
    resource = yaml.safe_load((FOLDER / name).read_text())
    assert resource["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    assert unknown(resource["spec"], KINDS[resource["kind"]]) == []
    spec = resource["spec"].get("template", resource["spec"])
    assert {"type", "sparkVersion", "mainApplicationFile", "driver", "executor"} <= spec.keys()
    assert spec["mainApplicationFile"] == f"local://{JOB}"
    (pinned,) = re.findall(r"^pyspark==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert str(spec["sparkVersion"]) == pinned
    (user,) = instructions("USER")
    for role in ("driver", "executor"):
        rights = spec[role]["securityContext"]
        assert f"{rights['runAsUser']}:{rights['runAsGroup']}" == user
    verb = typed([str(word) for word in spec["arguments"]])
    assert verb.verb == "spark archive"
    continuous = verb.parameters["continuous"]
    assert continuous == (spec["restartPolicy"]["type"] == "Always")


def test_an_unknown_field_of_a_resource_is_found() -> None:
    assert unknown({"driver": {"core": 1}, "image": 2}, APPLICATION) == [
        ".driver.core",
        ".image is no str",
    ]


def test_the_dag_of_airflow_submits_a_verb_with_its_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With stand-ins for Airflow, which is not installed here."""
    dags: list[dict[str, Any]] = []
    tasks: list[dict[str, Any]] = []

    class Dag:
        def __init__(self, dag_id: str, **settings: Any) -> None:
            dags.append({"dag_id": dag_id, **settings})

        def __enter__(self) -> Dag:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def submitted(**given: Any) -> None:
        tasks.append(given)

    modules = ("airflow", *(f"airflow.{name}" for name in _airflow_modules()))
    for name in modules:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["airflow"], "DAG", Dag, raising=False)
    operator = sys.modules[modules[-1]]
    monkeypatch.setattr(operator, "SparkSubmitOperator", submitted, raising=False)
    runpy.run_path(str(FOLDER / "airflow_dag.py"))

    ((dag,), (task,)) = dags, tasks
    assert dag["max_active_runs"] == 1  # two runs would compete for one checkpoint
    assert task.keys() <= OPERATOR
    assert Path(task["application"]).name == "orderlane_job.py"
    verb = typed(task["application_args"])
    assert (verb.verb, verb.parameters["continuous"]) == ("spark archive", False)


def _airflow_modules() -> list[str]:
    path = "providers.apache.spark.operators.spark_submit".split(".")
    return [".".join(path[: end + 1]) for end in range(len(path))]
