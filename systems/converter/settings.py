"""The converter's settings, read from environment variables of exactly these names (C11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from systems.common.variables import (
    Reader,
    folder,
    one_of,
    rate,
    read_variables,
    service,
    share,
    text,
    whole,
    window,
)

Mode = Literal["hold", "fail_fast"]
Backoff = Literal["double", "triple"]
CookieSecure = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings. Each field is set by the variable of the same name in capitals."""

    database_url: str = "sqlite:///data/converter.db"
    gateway_url: str = "http://127.0.0.1:8080"
    uploads_dir: Path = Path("data/uploads")
    results_dir: Path = Path("data/results")
    retry_max_attempts: int = 3
    retry_base_delay_ms: int = 5_000
    retry_jitter_max_ms: int = 5_000
    retry_backoff: Backoff = (
        "double"  #: "triple": 5 s, 15 s, 45 s, each ±20 %, as in the older source document
    )
    worker_lease_ttl_sec: int = 90
    worker_concurrency: int = 10
    worker_max_crashes: int = 3  #: a job fails when it has lost this many workers in a row
    gateway_timeout_ms: int = 60_000
    circuit_window: str = "20"  #: a number of calls, or a time such as "120s"
    circuit_fail_threshold: float = 0.5
    circuit_cooldown_ms: int = 30_000
    circuit_mode: Mode = "hold"
    source_retention_sec: int = (
        604_800  #: how long a PDF is kept after its upload, or until its job has ended
    )
    result_retention_sec: int = 604_800  #: how long the XML is kept after the job has ended
    job_retention_sec: int = 2_592_000  #: how long the job itself is kept
    upload_rate: str = "300/min"  #: the limit of uploads of one session
    free_space_min_mb: int = 256  #: uploads are refused when less than this is free
    session_key_file: Path = Path("data/session.key")  #: signs the cookies; created if it is missing
    #: `Secure` on the cookie: "auto" goes by the scheme that this server sees. Use "always" behind a proxy
    #: with TLS.
    cookie_secure: CookieSecure = "auto"

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """Return the settings in *environment*. An empty variable counts as not set.

        Raises:
            UsageError: A variable has an invalid value; the message names it.
        """
        return cls(**read_variables(_READERS, environment))


_READERS: dict[str, Reader] = {
    "database_url": text,
    "gateway_url": service("http://127.0.0.1:8080"),
    "uploads_dir": folder,
    "results_dir": folder,
    "retry_max_attempts": whole(1, 100),
    "retry_base_delay_ms": whole(1, 3_600_000),
    "retry_jitter_max_ms": whole(0, 3_600_000),
    "retry_backoff": one_of("double", "triple"),
    "worker_lease_ttl_sec": whole(2, 3_600),
    "worker_concurrency": whole(1, 1_000),
    "worker_max_crashes": whole(1, 1_000),
    "gateway_timeout_ms": whole(1, 3_600_000),
    "circuit_window": window,
    "circuit_fail_threshold": share,
    "circuit_cooldown_ms": whole(1, 3_600_000),
    "circuit_mode": one_of("hold", "fail_fast"),
    "source_retention_sec": whole(1, 1_000_000_000),
    "result_retention_sec": whole(1, 1_000_000_000),
    "job_retention_sec": whole(1, 1_000_000_000),
    "upload_rate": rate,
    "free_space_min_mb": whole(0, 1_000_000_000),
    "session_key_file": folder,
    "cookie_secure": one_of("auto", "always", "never"),
}
