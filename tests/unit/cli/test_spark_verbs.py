"""The command line of Spark jobs where Spark is not needed, and the conversion of Spark's
errors.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from proxy.cli import main
from proxy.cli.spark import connection, pairs
from proxy.errors import OrderlaneError
from thin_client.spark.jobs.words import foreign_sentence, sentence, with_defaults

_TRACE = """[STREAM_FAILED] Query [id = 610c, runId = 694e] terminated with exception: Traceback:
  File "thin_client/spark/writing.py", line 34, in write
    raise RowRefused("row 3 …")
thin_client.spark.outgoing.RowRefused: row 3 of partition 0 has no value: a message needs a body
 SQLSTATE: 38000
=== Streaming Query ===
"""
#: An error in the function of ``foreachBatch``, and its cause.
_BATCH_FAILED = """[STREAM_FAILED] Query [id = 610c, runId = 694e] terminated with exception:\
 [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach\
 batch sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most\
 recent call last):
  File "thin_client/spark/jobs/session.py", line 107, in errors_as_sentences
    yield
OSError: [Errno 28] No space left on device: '/lake'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "thin_client/spark/jobs/session.py", line 113, in errors_as_sentences
    raise OptionError(said) from error
thin_client.spark.option_values.OptionError: [Errno 28] No space left on device: '/lake'{end}
=== Streaming Query ===
Identifier: orderlane-lake-1 [id = 610c, runId = 694e]
"""


def test_without_spark_a_verb_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "configure_logs", lambda **_: None)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for name in [
        name for name in sys.modules if name.startswith(("pyspark.", "thin_client.spark.jobs."))
    ]:
        monkeypatch.delitem(sys.modules, name)
    words = "orderlane spark archive orders archive --group pipeline"
    monkeypatch.setattr(sys, "argv", words.split())
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("orderlane: spark archive: pyspark is not installed")
    assert "pip install 'orderlane[server,spark]'" in said


def test_pairs_have_a_name_and_may_contain_further_equals_signs() -> None:
    assert pairs(["a=1", "b=c=d", "e="], "--option") == {"a": "1", "b": "c=d", "e": ""}
    for text in ("a", "=1"):
        with pytest.raises(OrderlaneError, match="--option"):
            pairs([text], "--option")


def test_a_tls_file_enables_tls() -> None:
    plain = connection("proxy:9713", None, ca=None, certificate=None, key=None)
    assert plain == {"servers": "proxy:9713"}
    secret = connection("proxy:9713", "word", ca=Path("ca.pem"), certificate=None, key=None)
    assert secret == plain | {"token": "word", "tls": "true", "tlsCa": "ca.pem"}


def test_only_our_sentence_of_a_mixed_traceback_is_kept() -> None:
    assert (
        sentence(RuntimeError(_TRACE))
        == "row 3 of partition 0 has no value: a message needs a body"
    )


def test_the_sentence_may_follow_text_of_spark() -> None:
    error = RuntimeError("[PYTHON_DATA_SOURCE_ERROR] Failed: thin_client.errors.Refused: no topic")
    assert sentence(error) == "no topic"


@pytest.mark.parametrize("end", ["\n SQLSTATE: 39000 SQLSTATE: XXKST", " SQLSTATE: 39000", ""])
def test_an_error_in_a_function_of_a_batch_is_its_sentence(end: str) -> None:
    """Spark adds a code to each error, in the line in which the error's text ends."""
    said = sentence(RuntimeError(_BATCH_FAILED.replace("{end}", end)))
    assert said == "[Errno 28] No space left on device: '/lake'"


def test_only_the_first_line_of_an_error_of_spark_is_kept() -> None:
    error = RuntimeError("[PATH_NOT_FOUND] Path does not exist: file:/nowhere.\n\tat org.apache…")
    assert sentence(error) == "Spark failed: [PATH_NOT_FOUND] Path does not exist: file:/nowhere."


def of_library(module: str, text: str) -> Exception:
    """Return an error of a class that *module* defines."""
    made: Exception = type("SomeError", (Exception,), {"__module__": module})(text)
    return made


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            of_library("pyiceberg.exceptions", "SQL connection URI is required"),
            "pyiceberg failed: SQL connection URI is required",
        ),
        (of_library("requests.exceptions", ""), "pyiceberg failed: SomeError"),
        (of_library("_internal", "no table\n  0: frame"), "deltalake failed: no table"),
        (
            of_library(
                "py4j.protocol",
                "An error occurred while calling o1.x.\n: java.io.IOException: no FS\n\tat org.a",
            ),
            "Spark failed: java.io.IOException: no FS",
        ),
        (PermissionError(13, "Denied", "/lake"), "[Errno 13] Denied: '/lake'"),
        (OSError("Generic error\n \x1b[31m↳\x1b[0m more"), "Generic error"),
        (
            of_library(
                "requests.exceptions", "Max retries: url: /v1/config?token=SECRET&a=SECRET (x)"
            ),
            "pyiceberg failed: Max retries: url: /v1/config?token=…&a=… (x)",
        ),
        (
            of_library("sqlalchemy.exc", "cannot reach 'postgresql://me:SECRET@db:5432/lake'"),
            "pyiceberg failed: cannot reach 'postgresql://…@db:5432/lake'",
        ),
        (
            of_library("py4j.protocol", "no bucket s3a://ID:SEC/RET+SECRET@lake/orders"),
            "Spark failed: no bucket s3a://…@lake/orders",
        ),
        (OSError("refused: Bearer SECRET.SECRET"), "refused: Bearer …"),
        (
            OSError("at hdfs://name:8020/a@b, s3a://lake/a@b"),
            "at hdfs://name:8020/a@b, s3a://lake/a@b",
        ),
        (BrokenPipeError(32, "Broken pipe"), None),
        (KeyError("of our own"), None),
    ],
)
def test_an_error_of_a_store_or_a_catalog_is_one_line(error: Exception, said: str | None) -> None:
    assert foreign_sentence(error) == said


def test_an_error_of_spark_shows_no_token() -> None:
    error = RuntimeError("[CONNECT] no server at sc://host:15002/;token=SECRET;user_id=me")
    assert sentence(error) == (
        "Spark failed: [CONNECT] no server at sc://host:15002/;token=…;user_id=…"
    )


def test_option_names_ignore_case() -> None:
    given = with_defaults({"STARTINGOFFSETS": "latest"}, startingOffsets="earliest", a="b")
    assert given == {"STARTINGOFFSETS": "latest", "a": "b"}
