from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from proxy.errors import SettingsError
from proxy.settings.proxy_settings import Settings, load_settings
from proxy.settings.types import host_port

# The settings file of the design, without unsupported settings.
WHOLE = """
nameserver: 10.0.0.1:9876, 10.0.0.2:9876
listen: {thrift: 0.0.0.0:9713, producer: 127.0.0.1:9613, http: "[::1]:9714"}
lock: {renewal_s: 2, trust_s: 5.0, broker_lock_expiry_s: 60, request_timeout_s: 0.5}
ownership: {leave_after_s: 15, drain_s: 30, record_every_s: 1}
commit_every_s: 5
limits:
  max_frame_bytes: 5000000
  max_answer_bytes: 4194304
  max_connections: 10000
  max_connections_per_address: 1000
  memory_bytes: 1073741824
auto_create_groups: false
groups:
  - name: billing
    start_from: 2026-01-31T12:00:00Z
    mode: clustering
    max_leased_jobs: 4096
    topics:
      - name: orders
        order_key: "$.order.id"
        missing_key: by_queue
        tags: paid || refunded
        visibility_timeout_s: 5
        retry_intervals_ms: [100, 1000]
        max_deliveries: 16
        on_exhausted: block
        max_pull_batch: 256
        max_jobs_in_memory: 20000
        max_rate: null
        actions: [{filter: {where: "body.amount > `100`"}}, {transform: {to: body.order}}]
"""


def load(
    tmp_path: Path,
    text: str | bytes,
    environment: dict[str, str] | None = None,
    overrides: dict[str, Any] | None = None,
) -> Settings:
    path = tmp_path / "orderlane.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_settings(path, overrides, environment=environment or {})


def problems(*args: Any, **kwargs: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(*args, **kwargs)
    return str(caught.value).replace(f"{args[0]}/", "").splitlines()


def topic_problem(tmp_path: Path, line: str) -> str:
    text = f"groups: [{{name: billing, topics: [{{name: a}}, {{name: orders, {line}}}]}}]"
    [problem] = problems(tmp_path, text)
    return problem.removeprefix("orderlane.yaml: groups[0].topics[1].")


def test_no_file_means_all_defaults() -> None:
    settings = load_settings(environment={})
    assert settings == Settings()
    assert settings.nameserver == ("127.0.0.1:9876",)
    assert settings.groups == ()


def test_an_empty_file_means_all_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "# nothing yet\n") == Settings()


def test_the_whole_file_is_read(tmp_path: Path) -> None:
    settings = load(tmp_path, WHOLE)
    assert settings.nameserver == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert settings.listen.http == "[::1]:9714"
    group = settings.group("billing")
    assert group is not None
    assert group.start_ms == 1_769_860_800_000
    topic = group.topic("orders")
    assert topic is not None
    assert topic.retry_intervals_ms == (100, 1000)
    assert topic.on_exhausted == "block"
    assert settings.group("billings") is None
    assert group.topic("order") is None


def test_settings_are_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.commit_every_s = 1.0  # type: ignore[misc]


def test_environment_lies_over_the_file_and_options_over_both(tmp_path: Path) -> None:
    environment = {
        "ORDERLANE_LISTEN__THRIFT": "127.0.0.1:1111",
        "ORDERLANE_LISTEN__HTTP": "127.0.0.1:1112",
        "ORDERLANE_COMMIT_EVERY_S": "2.5",
        "ORDERLANE_AUTO_CREATE_GROUPS": "true",
        "ORDERLANE_NAMESERVER": "ns1:9876,ns2:9876",
    }
    settings = load(tmp_path, WHOLE, environment, {"listen.http": "127.0.0.1:0"})
    assert settings.listen.thrift == "127.0.0.1:1111"
    assert settings.listen.http == "127.0.0.1:0"
    assert settings.listen.producer == "127.0.0.1:9613"
    assert settings.commit_every_s == 2.5
    assert settings.auto_create_groups is True
    assert settings.nameserver == ("ns1:9876", "ns2:9876")


def test_foreign_variables_of_the_same_prefix_are_left_alone(tmp_path: Path) -> None:
    """Kubernetes sets such variables for a service named orderlane."""
    foreign = {"ORDERLANE_PORT": "tcp://10.0.0.1:9713", "ORDERLANE_SERVICE_HOST": "10.0.0.1"}
    assert load(tmp_path, "", foreign) == Settings()


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    environment = {
        "ORDERLANE_LISTN__THRIFT": "127.0.0.1:1",
        "ORDERLANE_COMMIT_EVERY": "1",
        "ORDERLANE_LIMITS__MEMORY_BYTES": "lots",
    }
    assert set(problems(tmp_path, "", environment)) == {
        "ORDERLANE_LIMITS__MEMORY_BYTES is 'lots': should be a valid integer",
        "ORDERLANE_COMMIT_EVERY: unknown; did you mean commit_every_s?",
        "ORDERLANE_LISTN__THRIFT: unknown; did you mean listen?",
    }


def test_a_variable_below_a_plain_value_is_named(tmp_path: Path) -> None:
    [problem] = problems(tmp_path, "listen: 5", {"ORDERLANE_LISTEN__THRIFT": "127.0.0.1:1"})
    assert problem == "ORDERLANE_LISTEN__THRIFT: listen is 5, not a group of settings"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("visibility_timeout_s: soon", "visibility_timeout_s is 'soon': should be a number"),
        ("visibility_timeout_s: 0", "visibility_timeout_s is 0: should be greater than 0"),
        ("visibility_timeout_s: .inf", "visibility_timeout_s is inf: should be a finite number"),
        ("max_deliveries: true", "max_deliveries is true: should be a valid integer"),
        ("max_deliverys: 3", "max_deliverys: unknown; did you mean max_deliveries?"),
        ("tags: 5", "tags is 5: should be text"),
        ("missing_key: drop", "missing_key is 'drop': should be 'by_queue', 'unordered' or"),
        ("retry_intervals_ms: []", "retry_intervals_ms: should not be empty"),
        ("retry_intervals_ms: 5", "retry_intervals_ms is 5: should be a list"),
        ("retry_intervals_ms: [-1]", "retry_intervals_ms[0] is -1: should be greater than or"),
        (
            "order_key: order.id",
            "order_key is 'order.id': should be QID, KEY, a JSON path such as $.order.id or"
            " PROPERTY:name such as PROPERTY:tenant",
        ),
        ("order_key: '$.order['", "this is not a valid JSON path: "),
        (
            "order_key: 'PROPERTY:'",
            "this is not a valid PROPERTY:name: the name of the property is missing",
        ),
        ("pressure_traffic: yes", "pressure_traffic is true: should be 'drop' or 'pass'"),
        ("actions: {}", "actions is a group of settings: should be a list"),
        ("actions: [filter]", "actions[0] is 'filter': should be a group of settings, each with"),
        ("actions: [{}]", "actions[0]: should be one action, under the name of its kind: filter,"),
        ("actions: [{filter: null}]", "actions[0]: should be one action, under the name of its"),
        ("actions: [{fliter: {tags: a}}]", "actions[0].fliter: unknown; did you mean filter?"),
        ("actions: [{filter: {}}]", "actions[0].filter: should have either where or tags"),
        ("actions: [{filter: {were: a}}]", "filter.were: unknown; did you mean where?"),
        ("actions: [{filter: {where: 5}}]", "actions[0].filter.where is 5: should be text"),
        (
            "actions: [{filter: {tags: a}}, {filter: {where: 'body.a > 1'}}]",
            "actions[1].filter.where is 'body.a > 1': is not valid JMESPath: 1 at character 10 is"
            " unexpected; write text in single quotes",
        ),
        ("actions: [{filter: {where: 'body.b[*]'}}]", "gives a list, but a filter needs true or"),
        ("actions: [{transform: {}}]", "actions[0].transform.to is missing: every transform needs"),
        ("actions: [{transform: {to: 'sum(boby)'}}]", "there is no 'boby' in a message: it has"),
        ("max_rate: 0", "max_rate is 0: should be greater than 0"),
    ],
)
def test_a_wrong_topic_setting_gives_one_sentence(tmp_path: Path, line: str, sentence: str) -> None:
    assert sentence in topic_problem(tmp_path, line)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("listen: {thrift: localhost}", "listen.thrift is 'localhost': should be host:port"),
        ("listen: {thrift: 'x:70000'}", "should have a port from 0 to 65535"),
        ("listen: {thrift: '::1:9713'}", "should be host:port"),
        ("nameserver: 'ns:9876,'", "nameserver[1] is '': should be host:port"),
        ("nameserver: 'ns:0'", "should name the port that the server listens on, not 0"),
        ("listn: {}", "listn: unknown; did you mean listen?"),
        (
            "frobnicate: 1",
            "frobnicate: unknown; known are access, auto_create_groups, broker_account,",
        ),
        ("2: 3", "the name of a setting should be text"),
        ("listen: {tls: {certificate: a.pem}}", "listen.tls.key is missing"),
        ("listen: {tls: {certificate: a.pem, key: b.pem, ca: c}}", "listen.tls.ca: unknown"),
        ("tokens: [{name: a, sha256: secret}]", "tokens[0].sha256: should be 64 hexadecimal"),
        ("groups: [{name: g}]", "groups[0].topics is missing: every group needs it"),
        ("groups: [g]", "groups[0] is 'g': should be a group of settings, each with its name"),
        ("groups: [{name: g, topics: []}]", "groups[0].topics: should not be empty"),
        ("groups: [{name: a b, topics: [{name: t}]}]", "groups[0].name is 'a b': group 'a b' is"),
        (
            "groups: [{name: g, topics: [{name: t}, {name: t}]}]",
            "groups[0].topics: 't' is listed more than once",
        ),
        (
            "groups: [{name: g, topics: [{name: t}]}, {name: g, topics: [{name: t}]}]",
            "groups: 'g' is listed more than once",
        ),
        (
            "groups: [{name: g, start_from: 2026-01-31 12:00:00, topics: [{name: t}]}]",
            "start_from is 2026-01-31 12:00:00: should be earliest, latest or a time with its zone",
        ),
        (
            "groups: [{name: g, mode: broad, topics: [{name: t}]}]",
            "groups[0].mode is 'broad': should be 'clustering' or 'broadcast'",
        ),
        (
            "groups: [{name: g, hand_out: longest, topics: [{name: t}]}]",
            "groups[0].hand_out is 'longest': should be 'oldest' or 'longest_chain'",
        ),
        (  # and a message that exceeds it: more than clients accept
            "limits: {max_answer_bytes: 16777216}",
            "limits.max_answer_bytes is 16777216: should be less than or equal to 15728640",
        ),
    ],
)
def test_a_wrong_setting_gives_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    [problem] = problems(tmp_path, text)
    assert sentence in problem
    assert problem.startswith("orderlane.yaml: ")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("listen: {tls: {certificate: a.pem}}", "listen.tls.key is missing: every tls needs it"),
        ("tokens: [{name: a}]", "tokens[0].sha256 is missing: every token needs it"),
        ("access: [{may: [pull]}]", "access[0].principals is missing: every access needs it"),
        (
            "groups: [{name: g, topics: [{name: t, tags: ''}]}]",
            "tags is '': should have at least 1",
        ),
        ("tracing: {endpoint: collector}", "endpoint is 'collector': should match pattern"),
    ],
)
def test_words_are_whole_in_every_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    assert sentence in "\n".join(problems(tmp_path, text))


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    assert len(problems(tmp_path, "commit_every_s: 0\nlistn: 1\ngroups: [{name: g}]")) == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [1\nb", "orderlane.yaml, line 2, column 2: invalid YAML: expected ','"),
        ("listen: {}\nlisten: {}", "line 2, column 1: invalid YAML: 'listen' is a"),
        ("listen: !!python/name:os.system", "line 1, column 9: invalid YAML"),
        ("? [a]\n: b", "found unhashable key"),
        ("- listen", "is ['listen'], should be settings such as"),
        ("start: 2013-99-99", "month must be in 1..12"),
        (b"\xff\xfe\x00", "orderlane.yaml: invalid YAML"),
        (b"\xe4", "orderlane.yaml: invalid YAML"),
    ],
)
def test_an_invalid_settings_file_gives_one_sentence(
    tmp_path: Path, text: str | bytes, sentence: str
) -> None:
    [problem] = problems(tmp_path, text)
    assert sentence in problem


def test_a_missing_file_gives_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.yaml: cannot be read: No such file"):
        load_settings(tmp_path / "none.yaml", environment={})


@pytest.mark.parametrize(
    ("lock", "figures"),
    [
        ("{renewal_s: 3}", "2 x 3 + 0.5 = 6.5, trust_s = 5, broker_lock_expiry_s = 10"),
        ("{trust_s: 10}", "2 x 2 + 0.5 = 4.5, trust_s = 10, broker_lock_expiry_s = 10"),
        ("{trust_s: 4.5}", "2 x 2 + 0.5 = 4.5, trust_s = 4.5, broker_lock_expiry_s = 10"),
    ],
)
def test_unsafe_lock_times_are_refused_with_their_values(
    tmp_path: Path, lock: str, figures: str
) -> None:
    [problem] = problems(tmp_path, f"lock: {lock}")
    assert "2 x renewal_s + request_timeout_s < trust_s < broker_lock_expiry_s" in problem
    assert figures in problem


def test_host_port() -> None:
    assert host_port("127.0.0.1:9713") == ("127.0.0.1", 9713)
    assert host_port("[::1]:0") == ("::1", 0)


def test_rules_need_somebody_whom_they_can_be_about() -> None:
    rule = b"access: [{principals: [a], may: [pull]}]\n"
    with pytest.raises(SettingsError, match="access: rules need tokens or certificates"):
        load_settings(environment={}, content=rule, path=Path("x.yaml"))
    known = b"certificates: [{name: a, common_name: a}]\n"
    with pytest.raises(SettingsError, match="certificates: need client_ca in listen"):
        load_settings(environment={}, content=known, path=Path("x.yaml"))
    wrong = b"access: [{principals: [a], may: [read]}]\n"
    with pytest.raises(SettingsError, match=r"access\[0\]\.may\[0\]"):
        load_settings(environment={}, content=wrong, path=Path("x.yaml"))
