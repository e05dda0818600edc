"""Spark settings of a job. Pure.

Settings given to the job win over those of spark-submit, and these over the job's defaults. Under
spark-submit, logs, the UI, the master and the name are the operator's: the job has no default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from thin_client.spark.option_values import OptionError

#: Defaults in a terminal: a job is one command, and its errors are one sentence.
_IN_A_TERMINAL = {
    # --conf spark.log.level=WARN shows the context of errors.
    "spark.log.level": "OFF",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: Defaults everywhere, which other readers of the written files need.
_OF_FILES = {
    "spark.sql.session.timeZone": "UTC",
    # Spark's older type has no time zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_MASTER = "local[*]"
_REMOTE = "spark.remote"
#: Setting with files for executors, separated by commas.
PYTHON_FILES = "spark.submit.pyFiles"


def master_of(given: str | None, *, submitted: bool) -> str | None:
    """Return the master to set; None leaves it to Spark's settings, as the empty text does.

    Args:
        given: the job's option; None if it is not set.
        submitted: whether spark-submit runs the job.
    """
    if given is None:
        return None if submitted else _MASTER
    return given or None


def remote_of(
    given: str | None, settings: Mapping[str, str], environment: Mapping[str, str]
) -> str | None:
    """Return the address of a server of Spark Connect, ``sc://…``; None for a classic session.

    The address is the job's master, or else the setting ``spark.remote``, or else the variable
    ``SPARK_REMOTE`` of the *environment*.
    """
    address = given or settings.get(_REMOTE)
    if address is None and given is None:
        address = environment.get("SPARK_REMOTE")
    return address if address and address.startswith("sc://") else None


def without_secrets(address: str) -> str:
    """Return the *address* of a server without its parameters, one of which may be a token."""
    return address.partition(";")[0]


def at_server(address: str, given: Mapping[str, str], *, submitted: bool) -> dict[str, str]:
    """Return the settings to set in a session at the server of Spark Connect at *address*.

    Raises OptionError for what such a session cannot do.
    """
    if submitted:
        raise OptionError(
            "spark-submit starts a session of its own: run the job without it to use"
            f" {without_secrets(address)}"
        )
    if PYTHON_FILES in given:
        raise OptionError(
            f"{PYTHON_FILES} does not reach the data source in a server of Spark Connect: install"
            f" the package for the Python of {without_secrets(address)}, and leave the setting out"
        )
    return {name: value for name, value in given.items() if name != _REMOTE}


def at_start(name: str, given: Mapping[str, str], *, submitted: bool) -> dict[str, str]:
    """Return the settings with which a session is started; *name*: that of the application."""
    if submitted:
        return dict(given)
    return {"spark.app.name": name} | _IN_A_TERMINAL | dict(given)


def afterwards(given: Mapping[str, str], is_set: Callable[[str], bool]) -> dict[str, str]:
    """Return the settings to add to a started session; *is_set*: whether Spark was given one."""
    return {
        name: value for name, value in _OF_FILES.items() if name not in given and not is_set(name)
    }
