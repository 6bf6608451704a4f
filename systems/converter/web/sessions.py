"""Who a browser is: a random name in a signed cookie. A browser without one gets it with the response."""

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
#: How long a browser is known after it was last given its cookie.
LASTS_SEC = 90 * 86_400
#: A cookie older than this is given out again, so that a browser that comes back is known for as long as ever.
RENEW_AFTER_SEC = 86_400
_NAME = re.compile(r"[A-Za-z0-9_-]{22}")
_KEY_BYTES = 32


class Sessions:
    def __init__(self, key: bytes) -> None:
        self._signer = TimestampSigner(key, salt="converter.session")

    def read(self, cookie: str) -> tuple[str | None, bool]:
        """The name in *cookie*, or None when it is not one of ours; and whether it is time to give it out again."""
        try:
            name, signed_at = self._signer.unsign(cookie[:200], max_age=LASTS_SEC, return_timestamp=True)
        except BadSignature:
            return None, True
        text = name.decode("ascii", "replace")
        age = self._signer.get_timestamp() - int(signed_at.timestamp())
        return (text, age > RENEW_AFTER_SEC) if _NAME.fullmatch(text) else (None, True)

    def new(self) -> str:
        """A name that nobody guesses: 128 random bits."""
        return secrets.token_urlsafe(16)

    def header(self, name: str, *, secure: bool) -> str:
        """The value of Set-Cookie. Scripts never see it, and pages elsewhere cannot post with it."""
        signed = self._signer.sign(name).decode()
        over_tls = "; Secure" if secure else ""
        return f"{COOKIE}={signed}; Path=/; Max-Age={LASTS_SEC}; HttpOnly; SameSite=Lax{over_tls}"


def read_key(file: Path) -> bytes:
    """The secret in *file*; made when it is not there. Of several processes that make it at once one wins."""
    with contextlib.suppress(FileNotFoundError):
        return _checked(file, file.read_bytes())
    make_folder(file.parent)
    made = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(secrets.token_bytes(_KEY_BYTES))
            out.flush()
            os.fsync(out.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(made, file)  # whole or not at all, and never over another's
    finally:
        made.unlink()
    return _checked(file, file.read_bytes())


def _checked(file: Path, key: bytes) -> bytes:
    if len(key) < _KEY_BYTES:
        raise UsageError(
            f"{file.name} does not hold a key of {_KEY_BYTES} bytes; remove it, and a new one is made: everybody gets a new session"
        )
    return key
