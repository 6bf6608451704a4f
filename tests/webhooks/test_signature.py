"""Signatures by Standard Webhooks, checked by its own library."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from holdfast.errors import BadSignature, UsageError
from holdfast.webhooks.signature import read_secret, sign, verify, write_secret

SECRET, OTHER = write_secret(bytes(range(32))), write_secret(bytes(range(1, 33)))
BODY = '{"text": "grüß"}'.encode()


def now() -> datetime:
    return datetime.now(UTC)


def test_the_reference_verifier_accepts_what_we_sign() -> None:  # E61
    headers = sign([SECRET], "msg_1", now(), BODY)
    assert Verifier(SECRET).verify(BODY, headers) == {"text": "grüß"}


def test_a_time_of_another_zone_is_signed_as_the_same_moment() -> None:
    there = now().astimezone(timezone(timedelta(hours=9)))
    assert Verifier(SECRET).verify(BODY, sign([SECRET], "msg_1", there, BODY))


@pytest.mark.parametrize("secret", [SECRET, OTHER])
def test_during_a_rotation_both_secrets_fit(secret: str) -> None:  # E61
    headers = sign([OTHER, SECRET], "msg_1", now(), BODY)
    assert Verifier(secret).verify(BODY, headers)
    assert verify([secret], headers, BODY, now=now()) == "msg_1"


@pytest.mark.parametrize(
    ("changed", "body"),
    [
        ({"webhook-id": "msg_2"}, BODY),
        ({"webhook-timestamp": "1700000000"}, BODY),
        ({}, BODY + b" "),
        ({"webhook-signature": "v1,AAAA"}, BODY),
    ],
)
def test_the_reference_verifier_and_ours_refuse_what_was_changed(
    changed: dict[str, str], body: bytes
) -> None:
    headers = sign([SECRET], "msg_1", now(), BODY) | changed
    with pytest.raises(WebhookVerificationError):
        Verifier(SECRET).verify(body, headers)
    with pytest.raises(BadSignature):
        verify([SECRET], headers, body, now=now())


def test_what_others_sign_is_accepted() -> None:
    at = now()
    theirs = Verifier(SECRET).sign("msg_1", at, BODY.decode())
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": f"v1a,AAAA v2,{theirs[3:]} {theirs}",
    }
    assert verify([OTHER, SECRET], headers, BODY, now=at) == "msg_1"


@pytest.mark.parametrize("age", [timedelta(minutes=6), timedelta(minutes=-6)])
def test_a_message_of_another_time_is_refused(age: timedelta) -> None:  # E61
    headers = sign([SECRET], "msg_1", now() - age, BODY)
    with pytest.raises(BadSignature, match="too old"):
        verify([SECRET], headers, BODY, now=now())


def test_a_message_within_the_tolerance_is_accepted() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    headers = sign([SECRET], "msg_1", at, BODY)
    assert verify([SECRET], headers, BODY, now=at + timedelta(minutes=5))
    assert verify([SECRET], headers, BODY, now=at - timedelta(minutes=5))


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": ""},
        {"webhook-id": "a" * 300},
        {"webhook-id": "a.b"},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "soon"},
        {"webhook-timestamp": "١٢٣"},
        {"webhook-timestamp": "9" * 400},
        {"webhook-timestamp": "-1"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1"},
        {"webhook-signature": "v1,é"},
        {"webhook-signature": "v1,\ud800"},
        {"webhook-signature": "v1,A " * 5000},
    ],
)
def test_nonsense_in_the_headers_is_a_bad_signature(changed: dict[str, str]) -> None:
    with pytest.raises(BadSignature):
        verify([SECRET], sign([SECRET], "msg_1", now(), BODY) | changed, BODY, now=now())


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_AAAA", "whsec_!!!!", SECRET.removeprefix("whsec_")])
def test_what_is_not_a_secret_is_refused(secret: str) -> None:
    with pytest.raises(UsageError, match="whsec_"):
        read_secret(secret)
