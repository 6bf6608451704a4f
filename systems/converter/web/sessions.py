"""Browser sessions: a random name in a signed cookie. A browser without one gets it with the response."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from pathlib import Path

from itsdangerous import BadSignature, TimestampSigner

from holdfast import UsageError
from systems.common.parts import make_folder

COOKIE = "converter_session"
#: The lifetime of a cookie.
LASTS_SEC = 90 * 86_400
#: A cookie older than this is renewed, so that the session of a browser in use does not end.
RENEW_AFTER_SEC = 86_400
_NAME = re.compile(r"[A-Za-z0-9_-]{22}")
_KEY_BYTES = 32


class Sessions:
    """Signs and checks session cookies."""

    def __init__(self, key: bytes) -> None:
        self._signer = TimestampSigner(key, salt="converter.session")

    def read(self, cookie: str) -> tuple[str | None, bool]:
        """Return the name in *cookie* (None if it is not valid) and whether to send a new cookie."""
        try:
            name, signed_at = self._signer.unsign(cookie[:200], max_age=LASTS_SEC, return_timestamp=True)
        except BadSignature:
            return None, True
        text = name.decode("ascii", "replace")
        age = self._signer.get_timestamp() - int(signed_at.timestamp())
        return (text, age > RENEW_AFTER_SEC) if _NAME.fullmatch(text) else (None, True)

    def new(self) -> str:
        """Return a new session name of 128 random bits."""
        return secrets.token_urlsafe(16)

    def header(self, name: str, *, secure: bool) -> str:
        """Return the value of Set-Cookie.

        Scripts cannot read the cookie, and pages of other sites cannot post it.
        """
        signed = self._signer.sign(name).decode()
        over_tls = "; Secure" if secure else ""
        return f"{COOKIE}={signed}; Path=/; Max-Age={LASTS_SEC}; HttpOnly; SameSite=Lax{over_tls}"


def read_key(file: Path) -> bytes:
    """Return the secret in *file*, and create it if it is missing.

    If several processes create it, one wins.
    """
    with contextlib.suppress(FileNotFoundError):
        return _checked(file, file.read_bytes())
    make_folder(file.parent)
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(secrets.token_bytes(_KEY_BYTES))
            out.flush()
            os.fsync(out.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, file)  # atomic, and never replaces the file of another process
    finally:
        temporary.unlink()
    return _checked(file, file.read_bytes())


def _checked(file: Path, key: bytes) -> bytes:
    if len(key) < _KEY_BYTES:
        raise UsageError(
            f"{file.name} does not hold a key of {_KEY_BYTES} bytes;"
            " remove it to get a new key, which ends all sessions"
        )
    return key
