"""JWTs of an identity provider: what is accepted, and attacks on what is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from proxy.admin.guard import Guard
from proxy.errors import NotAllowed
from proxy.net.jwt_tokens import JwtTokens
from proxy.net.principals import Principals, quotas_of
from proxy.settings.proxy_settings import Settings

NOW_S = 1_800_000_000
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
NEXT_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
CLAIMS: dict[str, Any] = {
    "iss": "https://id.test/",
    "aud": "orderlane",
    "sub": "ann",
    "exp": NOW_S + 600,
    "iat": NOW_S,
}


def jwk(key: Any, kid: str | None, **more: Any) -> dict[str, Any]:
    algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    made = {**algorithm.to_jwk(key.public_key(), as_dict=True), "use": "sig", **more}
    return made if kid is None else {**made, "kid": kid}


KEYS = {"keys": [jwk(RSA_KEY, "r1"), jwk(EC_KEY, "e1")]}


def tokens(*, keys: Any = KEYS, now_s: Callable[[], int] = lambda: NOW_S, **more: Any) -> JwtTokens:
    given = {"issuer": "https://id.test/", "audience": "orderlane", **more}
    settings = Settings.model_validate({"jwt": {"jwks_url": "https://id.test/keys", **given}})
    assert settings.jwt is not None
    made = JwtTokens(settings.jwt, wall_clock_ms=lambda: now_s() * 1000)
    if keys is not None:
        made.use_keys(keys)
    return made


def signed(key: Any = RSA_KEY, kid: str | None = "r1", alg: str = "RS256", **claims: Any) -> str:
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(given, key, algorithm=alg, headers=headers)


def raw(header: dict[str, Any], claims: dict[str, Any], signature: bytes) -> str:
    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    return f"{part(orjson.dumps(header))}.{part(orjson.dumps(claims))}.{part(signature)}"


def reason(made: JwtTokens, token: str) -> str:
    found = made.identify(token)
    assert found is not None
    assert found.principal is None
    return found.reason


def test_a_signed_token_names_its_principal() -> None:
    made = tokens()
    for token in (signed(), signed(EC_KEY, "e1", "ES256"), signed(aud=["x", "orderlane"])):
        for _ in range(2):  # the second time from memory
            found = made.identify(token)
            assert found is not None
            assert found.principal == "oidc:ann"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": "https://evil.test/"}, "Invalid issuer"),
        ({"iss": None}, "iss"),
        ({"aud": "another"}, "Audience doesn't match"),
        ({"aud": None}, "aud"),
        ({"exp": None}, "exp"),
        ({"exp": NOW_S - 30}, "expired"),
        ({"nbf": NOW_S + 31}, "future"),
        ({"iat": NOW_S + 31}, "future"),
        ({"sub": None}, "claim 'sub'"),
        ({"sub": ""}, "claim 'sub'"),
    ],
)
def test_claims_have_to_be_right(claims: dict[str, Any], why: str) -> None:
    assert why in reason(tokens(), signed(**claims))


def test_clocks_may_differ_by_the_skew() -> None:
    made = tokens()
    for claims in ({"exp": NOW_S - 29}, {"nbf": NOW_S + 30}, {"iat": NOW_S + 30}):
        found = made.identify(signed(**claims))
        assert found is not None
        assert found.principal == "oidc:ann"


def test_a_remembered_token_ends_as_well() -> None:
    now = [NOW_S]
    made = tokens(now_s=lambda: now[0])
    token = signed()
    assert made.identify(token) is not None
    now[0] += 631
    assert "expired" in reason(made, token)


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE", "", None, 5])
def test_unsigned_tokens_are_refused(alg: Any) -> None:
    assert "jwt.algorithms" in reason(tokens(), raw({"alg": alg, "kid": "r1"}, CLAIMS, b""))


@pytest.mark.parametrize("form", [PublicFormat.SubjectPublicKeyInfo, PublicFormat.PKCS1])
@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
def test_a_public_key_is_no_shared_secret(encoding: Encoding, form: PublicFormat) -> None:
    public = RSA_KEY.public_key().public_bytes(encoding, form)
    unsigned = raw({"alg": "HS256", "kid": "r1"}, CLAIMS, b"").rstrip(".")
    tag = hmac.new(public, unsigned.encode(), hashlib.sha256).digest()
    forged = raw({"alg": "HS256", "kid": "r1"}, CLAIMS, tag)
    assert "jwt.algorithms" in reason(tokens(), forged)
    relabelled = raw({"alg": "RS256", "kid": "r1"}, CLAIMS, tag)
    assert "Signature verification failed" in reason(tokens(), relabelled)


def test_another_key_or_a_changed_claim_is_refused() -> None:
    made = tokens()
    assert "Signature verification failed" in reason(made, signed(NEXT_KEY))
    header, _, signature = signed().split(".")
    claims = base64.urlsafe_b64encode(orjson.dumps({**CLAIMS, "sub": "ops"})).rstrip(b"=").decode()
    assert "Signature verification failed" in reason(made, f"{header}.{claims}.{signature}")


@pytest.mark.parametrize(("key", "kid", "alg"), [(RSA_KEY, "e1", "RS256"), (EC_KEY, "r1", "ES256")])
def test_a_key_serves_its_own_type_only(key: Any, kid: str, alg: str) -> None:
    assert reason(tokens(), signed(key, kid, alg))


def test_a_key_for_one_algorithm_serves_no_other() -> None:
    made = tokens(keys={"keys": [jwk(RSA_KEY, "r1", alg="RS256")]}, algorithms=["RS256", "PS256"])
    assert "its key is for RS256" in reason(made, signed(alg="PS256"))


def test_keys_named_in_the_token_are_ignored() -> None:
    headers = {"kid": "r1", "jwk": jwk(NEXT_KEY, "r1"), "jku": "https://evil.test/keys"}
    forged = jwt.encode(CLAIMS, NEXT_KEY, algorithm="RS256", headers=headers)
    assert "Signature verification failed" in reason(tokens(), forged)


def test_without_keys_every_token_is_refused() -> None:
    made = tokens(keys=None)
    asked: list[bool] = []
    made.call_on_unknown_key(lambda: asked.append(True))
    assert "unknown key" in reason(made, signed())
    assert asked == [True]


def test_keys_rotate_by_their_id() -> None:
    made = tokens()
    later = signed(NEXT_KEY, "r2")
    assert "unknown key" in reason(made, later)
    made.use_keys({"keys": [*KEYS["keys"], jwk(NEXT_KEY, "r2")]})
    assert made.identify(later) == ("oidc:ann", "")
    assert made.identify(signed()) == ("oidc:ann", "")
    made.use_keys({"keys": [jwk(NEXT_KEY, "r2")]})
    assert "unknown key" in reason(made, signed())  # also if it was remembered


def test_a_key_that_was_replaced_under_its_id_verifies_nothing_more() -> None:
    made = tokens()
    assert made.identify(signed()) == ("oidc:ann", "")  # and is remembered
    made.use_keys({"keys": [jwk(NEXT_KEY, "r1"), jwk(EC_KEY, "e1")]})
    assert "verification failed" in reason(made, signed())
    assert made.identify(signed(NEXT_KEY, "r1")) == ("oidc:ann", "")


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 10**400},
        {"iat": 10**400},
        {"nbf": -(10**400)},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"nbf": float("nan")},
    ],
)
def test_times_outside_of_all_calendars_are_refused(claims: dict[str, Any]) -> None:
    """JSON has numbers that no float holds, and Python reads more than JSON has."""
    assert "that is no time" in reason(tokens(), signed(**claims))


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"keys": {}},
        {"keys": []},
        {"keys": [None, 5, {"kty": "oct", "k": "c2VjcmV0", "kid": "s"}]},
        {"keys": [jwk(RSA_KEY, None)]},
        {"keys": [jwk(RSA_KEY, "r9", use="enc")]},
        {"keys": [{"kty": "RSA", "kid": "r9"}]},
        {"keys": [{}] * 101},
    ],
)
def test_a_useless_document_leaves_the_previous_keys(document: Any) -> None:
    made = tokens()
    with pytest.raises(ValueError, match=r"should be|no public key"):
        made.use_keys(document)
    assert made.keys == {"r1", "e1"}
    assert made.identify(signed()) == ("oidc:ann", "")


@pytest.mark.parametrize("token", ["", "a.b", "x.y.z", "correct horse", "eyJhbGciOiJub25lIn0"])
def test_other_tokens_are_no_jwts(token: str) -> None:
    assert tokens().identify(token) is None


@pytest.mark.parametrize("token", ["eyJ..", "eyJ.\x00.x", "eyJ.\ud800.x", f"eyJ.{'a' * 9_000}.x"])
def test_garbled_tokens_are_refused(token: str) -> None:
    assert reason(tokens(), token)


def test_claims_are_mapped_to_principals() -> None:
    mapped = [
        {"claim": "groups", "value": "payments", "principal": "billing"},
        {"claim": "azp", "value": "spark", "principal": "warehouse"},
    ]
    made = tokens(principals=mapped)
    assert made.identify(signed(groups=["all", "payments"])) == ("billing", "")
    assert made.identify(signed(azp="spark")) == ("warehouse", "")
    for claims in ({}, {"groups": "payment"}, {"groups": ["Payments"]}, {"azp": ["x"]}):
        assert "no entry of jwt.principals" in reason(made, signed(**claims))


def test_names_of_the_provider_are_not_those_of_the_settings() -> None:
    made = tokens()
    settings = Settings.model_validate(
        {"tokens": [{"name": "ann", "sha256": hashlib.sha256(b"t").hexdigest()}]}
    )
    principals = Principals(settings, jwt=made)
    assert principals.of("t", None) == "ann"
    assert principals.of(signed(), None) == "oidc:ann"
    assert principals.of("other", None) is None
    assert quotas_of(settings, principals.names)


def test_the_http_port_says_why_a_token_is_refused() -> None:
    """A refused token is not a missing one."""
    made = tokens()
    guard = Guard(Principals(Settings(), jwt=made), loopback=False)
    why = {
        signed(aud="other"): "the token is no valid JWT for this gateway: Audience doesn't match",
        signed(kid="r9"): "the token is a JWT of an unknown key: the keys are being read again",
        signed(iat=NOW_S + 900): r"the token is a JWT of the future \(iat\): check the clocks",
        signed(exp=NOW_S - 900): "the token is an expired JWT: get a new one",
        "x": "missing or unknown token: send Authorization: Bearer TOKEN",
    }
    for token, sentence in why.items():
        with pytest.raises(NotAllowed, match=sentence):
            guard.check("/api/groups", {}, {"Authorization": f"Bearer {token}"})
