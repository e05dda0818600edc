"""Settings of tokens, JWTs, quotas and revocation lists."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from proxy.core.limits.quotas import Quota
from proxy.errors import SettingsError
from proxy.settings.proxy_settings import Settings, load_settings


def loaded(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "orderlane.yaml"
    path.write_text(text)
    return load_settings(path, environment={})


@pytest.mark.parametrize(
    "expires",
    ["2027-03-31", "'2027-03-31'", "2027-03-31T00:00:00Z", "'2027-03-31T02:00:00+02:00'"],
)
def test_a_token_ends_at_a_day_or_a_time_with_a_zone(tmp_path: Path, expires: str) -> None:
    text = f"tokens: [{{name: a, sha256: {'a' * 64}, expires: {expires}}}]"
    (token,) = loaded(tmp_path, text).tokens
    assert token.expires == datetime(2027, 3, 31, tzinfo=UTC)


def test_a_principal_inherits_the_limits_that_it_does_not_set(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        "quotas:\n"
        "  default: {requests_per_s: 100.0, topics: 9}\n"
        "  principals:\n"
        "    - {name: a, topics: 2}\n"
        "    - {name: b, requests_per_s: null}\n",
    )
    first, second = settings.quotas.principals
    assert first.quota == Quota(requests_per_s=100, topics=2)
    assert second.quota == Quota(topics=9)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("jwt: {issuer: i, audience: a, jwks_url: 'http://id.test/'}", "https:// URL"),
        ("jwt: {issuer: i, audience: a, jwks_url: 'ftp://127.0.0.1/'}", "https:// URL"),
        ("jwt: {issuer: i, audience: a, jwks_url: 'https://x/', algorithms: [HS256]}", "RS256"),
        ("jwt: {issuer: i, audience: a, jwks_url: 'https://x/', algorithms: [none]}", "RS256"),
        ("jwt: {issuer: i, jwks_url: 'https://x/'}", "jwt.audience is missing"),
        ("quotas: {default: {loop_share: 1.5}}", "quotas.default.loop_share"),
        ("quotas: {principals: [{name: a}, {name: a}]}", "more than once"),
        ("listen: {tls: {certificate: c, key: k, crl_file: l}}", "client_ca"),
        (f"tokens: [{{name: a, sha256: {'a' * 64}, expires: 2027-03-31 10:00}}]", "expires"),
    ],
)
def test_invalid_settings_are_refused_with_a_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(SettingsError, match=sentence.replace("//", "/+")):
        loaded(tmp_path, text)
