"""The knobs of the reports, read from the environment under exactly these names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast import UsageError

FORMATS = ("json_schema", "json_object", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Each field is the variable of the same name in capitals."""

    database_url: str = "sqlite:///data/reports.db"
    documents_url: tuple[str, ...] = ("data/documents",)  #: folders or s3://bucket/prefix that may be read
    reports_url: str = "data/reports"  #: where reports are written
    schemas_dir: Path = Path("data/schemas")  #: named schemas, beside those that come with it
    watch_url: str = ""  #: new documents here become reports by themselves; empty: none do
    watch_schema: str = "invoice"
    watch_every_ms: int = 10_000
    documents_per_owner: bool = False  #: an owner's key reads only below a folder of the owner's name
    model_url: str = "http://127.0.0.1:8090/v1"
    model_name: str = "stand-in-1"
    model_api_key: str = field(default="", repr=False)
    model_timeout_ms: int = 120_000  #: of a call as a whole
    model_max_tokens: int = 4_096
    model_stream: bool = True
    model_response_format: str = "json_schema"
    model_tokens_field: str = "max_tokens"  #: newer servers want max_completion_tokens
    model_price_in: float = 0.0  #: for a million tokens, in any currency
    model_price_out: float = 0.0
    document_max_bytes: int = 2_000_000
    output_max_bytes: int = 1_000_000
    retry_first_ms: int = 30_000  #: P2; each further wait is four times the one before
    retry_max_attempts: int = 4
    worker_lease_ttl_sec: int = 90
    worker_concurrency: int = 10
    worker_max_crashes: int = 4  #: a lost worker is one of the attempts, not more
    circuit_window: str = "20"
    circuit_fail_threshold: float = 0.5
    circuit_cooldown_ms: int = 30_000
    job_retention_sec: int = 2_592_000

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """`UsageError` names the variable that cannot be read. An empty one counts as not set."""
        values: dict[str, Any] = {}
        for name, read in _READERS.items():
            variable = name.upper()
            if text := environment.get(variable, "").strip():
                values[name] = read(variable, text)
        return cls(**values)


Reader = Callable[[str, str], Any]


def _whole(least: int, most: int) -> Reader:
    def read(variable: str, text: str) -> int:
        # `int` would take "1_000" and digits of other scripts; more than 12 of them are no setting.
        if not (text.isascii() and text.isdigit() and len(text) <= 12) or not least <= int(text) <= most:
            raise UsageError(f"{variable} is {text[:40]!r}; it is a whole number from {least} to {most}")
        return int(text)

    return read


def _amount(most: float) -> Reader:
    def read(variable: str, text: str) -> float:
        if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", text) or float(text) > most:
            raise UsageError(f"{variable} is {text[:40]!r}; it is a number from 0 to {most:g}")
        return float(text)

    return read


def _switch(variable: str, text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise UsageError(f"{variable} is {text[:40]!r}; it is true or false")
    return text.lower() in ("true", "1", "yes")


def _one_of(*words: str) -> Reader:
    def read(variable: str, text: str) -> str:
        if text not in words:
            raise UsageError(f"{variable} is {text[:40]!r}; it is one of {', '.join(words)}")
        return text

    return read


def _window(variable: str, text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{0,3}|[1-9][0-9]{0,4}(s|m|h)", text):
        raise UsageError(f'{variable} is {text[:40]!r}; it is a number of calls ("20") or a time ("120s")')
    return text


def _service(variable: str, text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise UsageError(
            f"{variable} does not name a service; it is an address such as http://127.0.0.1:8090/v1, without a password"
        )
    return text.rstrip("/")


def _place(variable: str, text: str) -> str:
    if "://" in text and urlsplit(text).scheme not in ("s3", "file"):
        raise UsageError(f"{variable} does not name a place; it is a folder or s3://bucket/prefix")
    return text.rstrip("/")


def _places(variable: str, text: str) -> tuple[str, ...]:
    return tuple(_place(variable, one.strip()) for one in text.split(",") if one.strip())


def _text(_: str, text: str) -> str:
    return text


def _folder(_: str, text: str) -> Path:
    return Path(text)


_READERS: dict[str, Reader] = {
    "database_url": _text,
    "documents_url": _places,
    "reports_url": _place,
    "schemas_dir": _folder,
    "watch_url": _place,
    "watch_schema": _text,
    "watch_every_ms": _whole(1_000, 86_400_000),
    "documents_per_owner": _switch,
    "model_url": _service,
    "model_name": _text,
    "model_api_key": _text,
    "model_timeout_ms": _whole(1, 3_600_000),
    "model_max_tokens": _whole(1, 1_000_000),
    "model_stream": _switch,
    "model_response_format": _one_of(*FORMATS),
    "model_tokens_field": _one_of("max_tokens", "max_completion_tokens"),
    "model_price_in": _amount(1_000_000),
    "model_price_out": _amount(1_000_000),
    "document_max_bytes": _whole(1, 100_000_000),
    "output_max_bytes": _whole(1, 10_000_000),
    "retry_first_ms": _whole(1, 3_600_000),
    "retry_max_attempts": _whole(1, 100),
    "worker_lease_ttl_sec": _whole(2, 3_600),
    "worker_concurrency": _whole(1, 1_000),
    "worker_max_crashes": _whole(1, 1_000),
    "circuit_window": _window,
    "circuit_fail_threshold": _amount(1),
    "circuit_cooldown_ms": _whole(1, 3_600_000),
    "job_retention_sec": _whole(1, 1_000_000_000),
}
