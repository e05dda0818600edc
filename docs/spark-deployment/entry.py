"""The entry point of the image: what Spark on Kubernetes asks a container to do, as a command.

Spark's pods say ``driver`` or ``executor``; everything else is a command of its own, such as
``spark-submit`` or ``orderlane spark archive``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence

_EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
#: Options of an executor, and the variables in which Spark passes them.
_PASSED = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command for a container with these *arguments* and variables.

    Raises KeyError for a variable that Spark should have set.
    """
    what, *more = arguments or ["orderlane"]
    if what == "driver":
        address = environment["SPARK_DRIVER_BIND_ADDRESS"]
        return [
            f"{environment['SPARK_HOME']}/bin/spark-submit",
            *("--conf", f"spark.driver.bindAddress={address}"),
            *("--conf", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}"),
            *("--deploy-mode", "client", *more),
        ]
    if what == "executor":
        memory = environment["SPARK_EXECUTOR_MEMORY"]
        return [
            f"{environment['JAVA_HOME']}/bin/java",
            *_java_options(environment),
            *(f"-Xms{memory}", f"-Xmx{memory}", "-cp", _class_path(environment), _EXECUTOR),
            *(text for name, of in _PASSED.items() for text in (name, environment[of])),
        ]
    return [what, *more]


def _java_options(environment: Mapping[str, str]) -> list[str]:
    """Return the options that Spark numbers, in this order."""
    found = {
        int(name[1]): text
        for each, text in environment.items()
        if (name := re.fullmatch(r"SPARK_JAVA_OPT_(\d+)", each))
    }
    return [found[number] for number in sorted(found)]


def _class_path(environment: Mapping[str, str]) -> str:
    home = environment["SPARK_HOME"]
    more = (environment.get(name) for name in ("SPARK_EXTRA_CLASSPATH", "SPARK_DIST_CLASSPATH"))
    conf = environment.get("SPARK_CONF_DIR", f"{home}/conf")
    return ":".join([conf, f"{home}/jars/*", *filter(None, more)])


if __name__ == "__main__":
    found = command(sys.argv[1:], os.environ)
    os.execvp(found[0], found)
