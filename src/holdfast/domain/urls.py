"""What may be shown of a URL that someone configured: it may hold a password, and may be written wrongly."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def parts_of(url: str) -> SplitResult | None:
    """The parts of *url*; None where host or port cannot be read.

    An @ that is not the one before the host is a part of a password that should be written as %40, or moves the end of one:
    drivers differ in how they read such a URL, and would show pieces of the password as host, port or path.
    """
    try:
        parts = urlsplit(url)
        _ = parts.hostname, parts.port
    except ValueError:
        return None
    return parts if url.count("@") == parts.netloc.count("@") <= 1 else None


def scheme_of(url: str) -> str:
    """The word before the first colon of what should be a URL, e.g. "redis"; "" where it is no word or there is none."""
    scheme, colon, _ = url.partition(":")
    plain = scheme.replace("+", "").replace("-", "").replace(".", "")
    return scheme[:20] if colon and plain.isalnum() and plain.isascii() else ""


def shown(url: str) -> str:
    """*url* as it may be shown: scheme, host and port, nothing that could be a secret."""
    parts = parts_of(url)
    if parts is None:
        return "an address that cannot be read"
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{f':{parts.port}' if parts.port else ''}"
