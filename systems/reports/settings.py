"""The settings of the reports, read from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from holdfast import UsageError
from systems.common.variables import (
    Reader,
    amount,
    folder,
    one_of,
    rate,
    read_variables,
    service,
    switch,
    text,
    whole,
    window,
)

FORMATS = ("json_schema", "json_object", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings. Each field is read from the variable of the same name in capitals."""

    database_url: str = "sqlite:///data/reports.db"
    documents_url: tuple[str, ...] = ("data/documents",)  #: folders or s3://bucket/prefix to read from
    reports_url: str = "data/reports"  #: where reports are written
    schemas_dir: Path = Path("data/schemas")  #: named schemas, in addition to the built-in ones
    watch_url: str = ""  #: new documents here become reports automatically; empty to disable
    watch_schema: str = "invoice"
    watch_every_ms: int = 10_000
    documents_per_owner: bool = False  #: an owner's key reads only from the folder with the owner's name
    model_url: str = "http://127.0.0.1:8090/v1"
    model_name: str = "stand-in-1"
    model_api_key: str = field(default="", repr=False)
    model_timeout_ms: int = 120_000  #: for a whole call
    model_max_tokens: int = 4_096
    model_stream: bool = True
    model_response_format: str = "json_schema"
    model_tokens_field: str = "max_tokens"  #: newer servers want max_completion_tokens
    model_price_in: float = 0.0  #: per million tokens, in any currency
    model_price_out: float = 0.0
    document_max_bytes: int = 2_000_000
    output_max_bytes: int = 1_000_000
    retry_first_ms: int = 30_000  #: P2; each further wait is four times the one before
    retry_max_attempts: int = 4
    worker_lease_ttl_sec: int = 90
    worker_concurrency: int = 10
    worker_max_crashes: int = 4  #: a crash counts as an attempt, and has no lower limit of its own
    circuit_window: str = "20"
    circuit_fail_threshold: float = 0.5
    circuit_cooldown_ms: int = 30_000
    job_retention_sec: int = 2_592_000
    upload_rate: str = "120/min"  #: the limit of documents that one owner uploads

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """Read the settings.

        An empty variable counts as unset. Raises `UsageError` that names an invalid variable.
        """
        return cls(**read_variables(_READERS, environment))


def _place(variable: str, text: str) -> str:
    if "://" in text and urlsplit(text).scheme not in ("s3", "file"):
        raise UsageError(f"{variable} is not a location; set it to a folder or s3://bucket/prefix")
    return text.rstrip("/")


def _places(variable: str, text: str) -> tuple[str, ...]:
    return tuple(_place(variable, one.strip()) for one in text.split(",") if one.strip())


_READERS: dict[str, Reader] = {
    "database_url": text,
    "documents_url": _places,
    "reports_url": _place,
    "schemas_dir": folder,
    "watch_url": _place,
    "watch_schema": text,
    "watch_every_ms": whole(1_000, 86_400_000),
    "documents_per_owner": switch,
    "model_url": service("http://127.0.0.1:8090/v1"),
    "model_name": text,
    "model_api_key": text,
    "model_timeout_ms": whole(1, 3_600_000),
    "model_max_tokens": whole(1, 1_000_000),
    "model_stream": switch,
    "model_response_format": one_of(*FORMATS),
    "model_tokens_field": one_of("max_tokens", "max_completion_tokens"),
    "model_price_in": amount(1_000_000),
    "model_price_out": amount(1_000_000),
    "document_max_bytes": whole(1, 100_000_000),
    "output_max_bytes": whole(1, 10_000_000),
    "retry_first_ms": whole(1, 3_600_000),
    "retry_max_attempts": whole(1, 100),
    "worker_lease_ttl_sec": whole(2, 3_600),
    "worker_concurrency": whole(1, 1_000),
    "worker_max_crashes": whole(1, 1_000),
    "circuit_window": window,
    "circuit_fail_threshold": amount(1),
    "circuit_cooldown_ms": whole(1, 3_600_000),
    "job_retention_sec": whole(1, 1_000_000_000),
    "upload_rate": rate,
}
