"""Show configured URLs without their secrets: they may contain a password and may be malformed."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def parts_of(url: str) -> SplitResult | None:
    """Return the parts of *url*, or None when its host or port cannot be read.

    A URL with a second @ counts as unreadable: the @ belongs to a password and should be written as %40.
    Drivers split such a URL differently, so pieces of the password could appear as host, port or path.
    """
    try:
        parts = urlsplit(url)
        _ = parts.hostname, parts.port
    except ValueError:
        return None
    return parts if url.count("@") == parts.netloc.count("@") <= 1 else None


def scheme_of(url: str) -> str:
    """Return the scheme of *url*, e.g. "redis", at most 20 characters; "" when it has none."""
    scheme, colon, _ = url.partition(":")
    plain = scheme.replace("+", "").replace("-", "").replace(".", "")
    return scheme[:20] if colon and plain.isalnum() and plain.isascii() else ""


def shown(url: str) -> str:
    """Return the scheme, host and port of *url*: nothing that could be a secret."""
    parts = parts_of(url)
    if parts is None:
        return "an address that cannot be read"
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{f':{parts.port}' if parts.port else ''}"
