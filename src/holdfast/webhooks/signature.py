"""Signatures by Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`, with `whsec_…` secrets."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256

from holdfast.errors import BadSignature, UsageError

PREFIX = "whsec_"
#: How old, or how far ahead, a signed message may be.
TOLERANCE = timedelta(minutes=5)
_MOST_SIGNATURES = 20
_LONGEST_ID = 256


def write_secret(random: bytes) -> str:
    """Return random bytes as the text of a secret."""
    return PREFIX + base64.b64encode(random).decode()


def read_secret(secret: str) -> bytes:
    """Return the key of a secret. Raise `UsageError` if the text is not a secret."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or not 24 <= len(key) <= 64:
        raise UsageError(f"this is not a webhook secret; it must be {PREFIX} and 24 to 64 bytes as base64")
    return key


def sign(secrets: Sequence[str], message_id: str, at: datetime, body: bytes) -> dict[str, str]:
    """Return the three signature headers. During a rotation the message is signed with each secret."""
    timestamp = str(int(at.timestamp()))
    signatures = [_signature(read_secret(secret), message_id, timestamp, body) for secret in secrets]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def verify(
    secrets: Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: datetime,
    tolerance: timedelta = TOLERANCE,
) -> str:
    """Return the id of a message that was signed with one of *secrets* at most *tolerance* ago.

    *headers* must have lower-case names.

    Raises:
        BadSignature: A header is missing or wrong, the message is too old, or no signature is right.
    """
    message_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    given = headers.get("webhook-signature", "").split(" ")
    if not message_id or not given[0] or not (timestamp.isascii() and timestamp.isdigit()):
        raise BadSignature("the headers webhook-id, webhook-timestamp and webhook-signature are needed")
    if len(message_id) > _LONGEST_ID or len(timestamp) > 12 or not message_id.isascii() or "." in message_id:
        raise BadSignature("webhook-id or webhook-timestamp is not one of Standard Webhooks")
    if abs(now.timestamp() - int(timestamp)) > tolerance.total_seconds():
        raise BadSignature("webhook-timestamp is too old or too far ahead; check the clock of the sender")
    expected = [_signature(read_secret(secret), message_id, timestamp, body).encode() for secret in secrets]
    is_valid = False
    for signature in given[:_MOST_SIGNATURES]:
        version, _, value = signature.partition(",")
        for correct in expected:  # every pair is compared, each in constant time
            is_valid |= version == "v1" and hmac.compare_digest(correct, value.encode(errors="replace"))
    if not is_valid:
        raise BadSignature("no signature fits; check the secret, and that the body is signed byte for byte")
    return message_id


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return base64.b64encode(hmac.new(key, signed, sha256).digest()).decode()
